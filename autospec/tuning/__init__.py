"""The main job: puts engine, measure and tune together into a study and its profile."""
