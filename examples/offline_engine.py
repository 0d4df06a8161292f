"""Generate in this process with a profile's settings, without a server.

python examples/offline_engine.py PROFILE "Write a haiku about rain."
"""

from __future__ import annotations

import os
import sys

import autospec
from autospec.engine import cpu


def main(path: str, prompt: str) -> None:
    """Start ``sglang.Engine`` as the profile says and answer one prompt."""
    profile = autospec.load_profile(path)
    # The runtime policy works here too; without this line the engine speculates always.
    os.environ.update(profile.environment_variables())
    if cpu.needed(profile.environment.device):
        cpu.activate()
    import sglang  # noqa: PLC0415  # after activate(), which sets what SGLang reads at import

    engine = sglang.Engine(**profile.server_args())
    try:
        answer = engine.generate(prompt, {"temperature": 0, "max_new_tokens": 64})
        print(answer["text"])
    finally:
        engine.shutdown()


# SGLang starts its processes by spawning, which imports this file again.
if __name__ == "__main__":
    main(*sys.argv[1:3])
