"""Options of the whole suite."""

import os

import pytest

# The graphs of tests are tiny: threads cost more than they save, and several test processes share the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept-graphs", action="store_true", help="rewrite the golden graphs in tests/graphs/golden")
    parser.addoption("--accept-docs", action="store_true", help="write real output into the console blocks of the docs")


def pytest_configure(config: pytest.Config) -> None:
    for option in ("--accept-graphs", "--accept-docs"):
        if config.getoption(option) and os.environ.get("CI"):
            raise pytest.UsageError(f"{option} is forbidden in CI: what is shown changes in a reviewed commit")


@pytest.fixture
def accept_graphs(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept-graphs"))
