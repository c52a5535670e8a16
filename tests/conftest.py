"""Options of the whole suite."""

import os

import pytest

# The graphs of tests are tiny: threads cost more than they save, and several test processes share the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept-graphs", action="store_true", help="rewrite the golden graphs in tests/graphs/golden")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--accept-graphs") and os.environ.get("CI"):
        raise pytest.UsageError("--accept-graphs is forbidden in CI: golden graphs change in a reviewed commit")


@pytest.fixture
def accept_graphs(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept-graphs"))
