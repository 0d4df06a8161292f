"""Programs for this repository; they are no part of the package."""
