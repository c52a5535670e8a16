"""`kvc plan` as it is called."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from plan_specs import GIB, make_run, make_spec

import kvc.cli.plan
from kvc.cli import main
from kvc.plan import make_plan
from kvc.plan.types import Plan
from kvc.specs import load_spec

MEMORY = "\nmemory: {device: 139GiB, free_fraction: 0.9, reserve: 16GB}\n"


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs ``kvc plan ARGS...`` in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvc", "plan", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        return done.value.code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b-bf16", 131_072),
        ("llama-3.1-8b-fp8", 65_536),
        ("smollm2-135m-bf16", 23_040),
        ("qwen3-8b-bf16", 147_456),
        ("qwen3-8b-fp8", 73_728),
    ],
)
def test_golden_totals_of_the_library(name, expected):
    assert make_plan(load_spec(name)).bytes_per_token == expected


def test_the_table(call):
    code, out, err = call("tiny-mixed", "--device", "1MiB")
    assert (code or 0, err) == (0, "")
    assert out == TABLE


def test_json_is_the_plan(call):
    code, out, err = call("tiny-mixed", "--json", "--device", "1MiB")
    assert (code or 0, err) == (0, "")
    assert Plan.from_json(json.loads(out)) == make_plan(load_spec("tiny-mixed"), 2**20)


def test_json_has_the_documented_fields(call):
    _, out, _ = call("llama-3.1-8b-bf16", "--json", "--device", "139GiB")
    data = json.loads(out)
    group, pool_group = data["layer_groups"][0], data["pool_groups"][0]
    assert (data["name"], len(data["digest"])) == ("llama-3.1-8b-bf16", 64)
    assert (data["bytes_per_token"], data["bytes_per_sequence"]) == (131_072, 0)
    assert {
        "name": "gqa0",
        "layers": list(range(32)),
        "encoding": "bf16",
        "coverage": "full",
        "tokens_per_page": 32,
        "page_bytes": 131_072,
        "bytes_per_token": 131_072,
        "bytes_per_sequence": 0,
        "pool_group": 0,
    }.items() <= group.items()
    assert {"id": 0, "slot_bytes": 4_194_304, "num_slots": 35_584}.items() <= pool_group.items()
    assert {"tokens": 35_584 * 32, "sequences_at_max_len": 8}.items() <= data["capacity"].items()


def test_memory_of_the_spec_and_of_the_option(call, tmp_path):
    source = kvc.specs.library.library_specs()["llama-3.1-8b-bf16"].read_text()
    file = tmp_path / "mine.yaml"
    file.write_text(source + MEMORY)
    own = json.loads(call(file, "--json")[1])["capacity"]
    other = json.loads(call(file, "--json", "--device", "80GB")[1])["capacity"]
    assert own["cache_bytes"] == (139 * GIB - 16 * 10**9) * 9 // 10
    assert other["cache_bytes"] == 64 * 10**9 * 9 // 10
    assert str(tmp_path) not in call(file, "--json")[1]


@pytest.mark.parametrize(
    "size", ["139Gi", "-5GiB", "abc", "", "1e3", "nan", "0x10", "9" * 5000 + "GiB", "1GiB\n2", "٣GiB"]
)
def test_a_bad_device_is_a_finding(call, size):
    code, out, err = call("tiny-bf16", "--device", size)
    assert (code, out) == (1, "")
    assert err.startswith("KVC204 --device: ")
    assert "= help: write" in err


def test_a_device_of_nothing_is_a_finding(call):
    code, out, err = call("tiny-bf16", "--device", "0")
    assert (code, out) == (1, "")
    assert err.startswith("KVC203 no memory left for a cache")


def test_an_unknown_spec_gets_a_hint(call):
    code, out, err = call("lama-3.1-8b-bf16")
    assert (code, out) == (1, "")
    assert "did you mean `llama-3.1-8b-bf16`?" in err


def test_torch_is_not_loaded():
    probe = "import sys; from kvc.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    arguments = [sys.executable, "-c", probe, "plan", "tiny-fp8", "--device", "1GiB"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "kvc.plan.planner" in loaded
    assert not loaded & {"torch", "triton", "transformers", "numpy"}


def test_the_plan_is_light_without_a_spec():
    """What artifact and runtime import of the plan brings in no pydantic."""
    probe = (
        "import sys, kvc.plan.types, kvc.plan.stale, kvc.plan.capacity, kvc.plan.diff; print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_layers_of_a_deep_spec_stay_on_one_line(call, monkeypatch):
    deep = replace(make_spec(make_run(0, 3200)), name="deep")
    monkeypatch.setattr(kvc.cli.plan, "load_spec", lambda name: deep)
    assert "gqa0   0-3199 " in call("deep")[1]
    lines = call("deep", "--json")[1].splitlines()
    assert sum('"layers"' in line for line in lines) == 1
    assert sum('"layer":' in line for line in lines) == 3200


TABLE = """\
tiny-mixed: 4 layers, spec tiny-mixed.yaml, digest 763680d8352e

total                bytes  meaning
bytes per token        960  slope: grows with every token
bytes per sequence       0  fixed: windows, states, twins at their longest
smallest request    15,360  bytes; derived: slots of one token

group  layers  encoding   S  page bytes  B/token  B/sequence  spec line
gqa0   0,3     fp8       16       1,536      192           0  9
gqa1   1-2     fp32      16       6,144      768           0  9
S: tokens per page; page bytes of one layer; B/token, B/sequence of the group

lifecycle  domain  keeps  pool group  B/token  B/sequence  spec line
        0  target  full            0      960           0  9

pool  lifecycle  pool group  pages in a slot  slot bytes  slots  spec line
   0          0           0  2 x 6,144            12,288     68  9
   1          0           0  2 x 1,536             3,072     68  9

beside the pools   bytes  meaning
scale operands        24  equal scales are stored once
RoPE tables       16,384  cos and sin up to max_seq_len
page tables          768  slots and pages of a full step
null page              0  not needed: padding touches no page
scratch                0  of layers; -: known once they are compiled

capacity        amount  meaning
device       1,048,576  1 MiB
reserve              0  0 B
cache        1,048,576  1 MiB (1.0 of 1 MiB)
whole slots  1,044,480  1,020 KiB
tokens           1,088  in whole pages (derived)
sequences            4  of 256 tokens each (derived)

[████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓·]
   memory    bytes  share    meaning
█  gqa0    208,896   19.9 %  fp8, full
▓  gqa1    835,584   79.7 %  fp32, full
·  free      4,096    0.4 %  neither cache nor reserve

note: the cache takes the whole device: the spec has no `memory` section with a
      free_fraction or a reserve
note: not subtracted: weights, activations and workspace (give `memory.reserve`)
"""
