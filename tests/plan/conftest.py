"""Property tests of the plan: machines differ in speed, so no deadline; same examples on every run in CI."""

import os

from hypothesis import settings

settings.register_profile("plan", deadline=None, max_examples=60, derandomize="CI" in os.environ)
settings.load_profile("plan")
