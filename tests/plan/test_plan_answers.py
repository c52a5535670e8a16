"""`kvc plan` with --fit, --compare, --explain, --optimise and --tp, as it is called."""

import json
import sys

import pytest

from kvc.cli import main
from kvc.diagnostics import KvcError
from kvc.plan.fit import parse_count, parse_question


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs ``kvc plan ARGS...`` in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvc", "plan", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        return done.value.code or 0, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("32k", 32_000), ("32Ki", 32_768), ("1M", 10**6), ("1.5Mi", 3 * 2**19), ("0.5k", 500)],
)
def test_counts(text, number):
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "32kb", "k", "1e6", "9" * 40, "1 000"])
def test_bad_counts(text):
    with pytest.raises(KvcError) as caught:
        parse_count(text)
    assert caught.value.diagnostics[0].code == "KVC207"


def test_questions():
    assert parse_question("tokens=100", 64).mix == {64: 1, 36: 1}
    assert parse_question("sequences=64@32k", 131_072).mix == {32_000: 64}
    assert parse_question("sequences=64", 1000).mix == {1000: 64}
    assert parse_question("device=1GiB", 64).device_bytes == 2**30
    for bad in ("64@32k", "seqs=1", "device=1GiBB", "tokens"):
        with pytest.raises(KvcError):
            parse_question(bad, 64)


def test_fit_of_a_short_request(call):
    code, out, _ = call("gpt-oss-20b", "--fit", "sequences=1@12", "--device", "139GiB")
    assert code == 0
    assert out == FIT


def test_fit_of_tokens_and_of_a_device_agree(call):
    fits = json.loads(call("qwen3-next", "--fit", "device=139GiB", "--json")[1])
    again = json.loads(call("qwen3-next", "--fit", f"tokens={fits['tokens']}", "--device", "139GiB", "--json")[1])
    assert again["fits"] and again["nbytes"] == fits["nbytes"] <= fits["cache_bytes"]
    more = call("qwen3-next", "--fit", f"tokens={fits['tokens'] + 1}", "--device", "139GiB", "--json")[1]
    assert json.loads(more)["fits"] is False


def test_fit_without_a_device(call):
    assert "give `--device` to see whether they fit" in call("gpt-oss-20b", "--fit", "tokens=1M")[1]


def test_a_bad_question_is_a_finding(call):
    code, out, err = call("gpt-oss-20b", "--fit", "64@32k")
    assert (code, out) == (1, "") and err.startswith("KVC207 ")


def test_compare(call):
    code, out, _ = call("--compare", "llama-3.1-8b-bf16", "llama-3.1-8b-fp8", "qwen3-next")
    assert code == 0
    assert out.splitlines()[:3] == COMPARED
    data = json.loads(call("--compare", "llama-3.1-8b-bf16", "llama-3.1-8b-fp8", "--json")[1])
    assert data["figures"][0]["ratios"] == [1.0, 0.5]


@pytest.mark.parametrize("arguments", [("--compare", "tiny-fp8"), ("tiny-fp8", "tiny-bf16")])
def test_comparing_needs_two_and_says_so(call, arguments):
    assert call(*arguments)[0] in (1, 2)


def test_explain_cites_the_spec_line_of_every_number(call):
    code, out, _ = call("deepseek-v3", "--explain")
    lines = out.splitlines()
    assert code == 0
    assert all(line.rstrip().endswith(("deepseek-v3.yaml:10", "deepseek-v3.yaml:32", "derived")) for line in lines[1:])
    assert any("= 20,736 x 61 layers / 64 tokens" in line and " 19764 " in line for line in lines)
    assert any("= ceil(64/64) + ceil((257 - 1 + 3)/64) + 1" in line for line in lines)
    assert len(json.loads(call("deepseek-v3", "--explain", "--json")[1])["formulas"]) == len(lines) - 1


def test_tensor_parallel(call):
    one, eight = (json.loads(call("llama-3.1-8b-bf16", "--json", *more)[1]) for more in ((), ("--tp", "8")))
    assert one["bytes_per_token"] == 8 * eight["bytes_per_token"]
    assert call("deepseek-v3", "--tp", "8")[1].count("whole on each of 8 ranks") == 1
    code, _, err = call("llama-3.1-8b-bf16", "--tp", "5")
    assert code == 1 and "KVC138 32 heads do not divide over 5 ranks" in err


def test_optimise(call):
    code, out, _ = call("qwen3-next", "--optimise")
    assert code == 0 and out.startswith("cost of one sequence of 131,072 tokens = wasted bytes")
    assert out.splitlines()[-1].startswith("chosen: ")
    data = json.loads(call("qwen3-next", "--optimise", "--json")[1])
    assert data["choices"][0]["cost"] == min(choice["cost"] for choice in data["choices"])


FIT = """\
sequences=1@12: 12 tokens in 1 sequence take 3,145,728 bytes (3 MiB): fits, 0.00211 % of the cache's 139 GiB

pool group  slots held  slot bytes      bytes  slots in all  of the pool
0                    2   1,572,864  3,145,728        94,890  0.00211 %
"""
COMPARED = [
    "                            llama-3.1-8b-bf16  llama-3.1-8b-fp8  ratio     qwen3-next  ratio",
    "bytes per token (slope)               131,072            65,536  x0.5          24,576  x0.188",
    "bytes per sequence (fixed)                  0                 0            77,266,944",
]
