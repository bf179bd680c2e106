"""The plan as a whole: the JSON contract, the recommendation's order, traps, and input nobody should send."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncdiag.cli.plan import command
from ncdiag.report.plan import render
from ncdiag.sizing.config import ConfigError
from ncdiag.sizing.gpus import GPUS, GpuError, parse_gpus
from ncdiag.sizing.plan import Request, make_plan
from tests.sizing.public_models import CONFIGS, TOTAL_SIZES


def plan(tmp_path: Path, config: Any, *gpus: str, **asked: Any) -> dict[str, Any]:
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return make_plan(Request(tmp_path, parse_gpus(gpus), **asked))


def with_context(name: str, tokens: int) -> dict[str, Any]:
    return {**CONFIGS[name], "max_position_embeddings": tokens}


def test_contract(tmp_path: Path) -> None:
    said = plan(tmp_path, with_context("Llama-3.1-70B", 131072), "H100x8", max_model_len=32768)
    assert said["schema"] == 1
    assert {"architecture", "parameters", "weights_bytes", "kv_bytes_per_token", "source"} <= set(said["model"])
    assert said["model"]["weights_bytes"] == TOTAL_SIZES["Llama-3.1-70B"]
    assert said["model"]["kv_bytes_per_token"] == 327680
    for layout in said["layouts"]:
        assert {"tp", "pp", "gpus", "fits", "weights_bytes_per_gpu", "kv_tokens", "why"} <= set(layout)
        assert layout["fits"] == (layout["kv_tokens"] >= layout["requests_per_engine"] * 32768)
    assert (said["recommended"]["tp"], said["recommended"]["pp"], said["recommended"]["replicas"]) == (4, 1, 2)
    assert "--tensor-parallel-size 4 --data-parallel-size 2" in said["commands"][0]
    json.loads(json.dumps(said, allow_nan=False))


@pytest.mark.parametrize(
    ("name", "gpus", "asked", "expected"),
    [
        ("Llama-3.1-8B", "H100x8", {"max_model_len": 8192}, (1, 1, 1)),
        ("Llama-3.1-8B", "H100x8*4", {"max_model_len": 8192, "concurrency": 64}, (1, 1, 1)),
        ("Llama-3.1-70B", "H100x8*2", {"max_model_len": 8192}, (2, 1, 1)),
        ("Llama-3.1-405B", "H100x8*2", {"max_model_len": 8192}, (8, 2, 1)),
        ("DeepSeek-V3", "H100x8*2", {"max_model_len": 8192}, (8, 2, 1)),
        ("DeepSeek-V3", "H200x8", {"max_model_len": 8192}, (8, 1, 1)),
        ("DeepSeek-V3", "H100x8*2", {"max_model_len": 32768, "concurrency": 32}, (1, 1, 16)),
        ("gpt-oss-120b", "H100x8", {"max_model_len": 8192}, (1, 1, 1)),
        ("Qwen3-32B", "48GBx4", {"max_model_len": 8192}, (2, 1, 1)),
    ],
)
def test_recommended(tmp_path: Path, name: str, gpus: str, asked: dict[str, Any], expected: tuple[int, ...]) -> None:
    best = plan(tmp_path, with_context(name, 131072), gpus, **asked)["recommended"]
    assert (best["tp"], best["pp"], best["dp"]) == expected


def test_several_nodes_get_ray_lines_and_quantising_comes_first(tmp_path: Path) -> None:
    said = plan(tmp_path, with_context("Llama-3.1-405B", 131072), "H100x8*2", max_model_len=8192)
    assert [line.split()[:2] for line in said["commands"]] == [["ray", "start"], ["ray", "start"], ["vllm", "serve"]]
    assert "--pipeline-parallel-size 2" in said["commands"][2]
    assert said["warnings"][0].startswith("quantise before spreading")
    assert said["recommended"]["quantise_first"]["tp"] == 8


def test_heads_that_do_not_divide_are_left_out(tmp_path: Path) -> None:
    config = {
        **with_context("Qwen2.5-14B", 32768),
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "hidden_size": 3584,
    }
    assert {layout["tp"] for layout in plan(tmp_path, config, "H100x8")["layouts"]} == {1, 2, 4}


def test_experts_stay_whole_where_the_fp8_block_does_not_divide(tmp_path: Path) -> None:
    config = {
        **with_context("Qwen3-235B-A22B", 40960),
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    at_eight = [x for x in plan(tmp_path, config, "H100x8")["layouts"] if x["tp"] == 8]
    assert at_eight and all(layout["ep"] == 8 for layout in at_eight)  # 1536 / 8 is no multiple of 128


def test_a_context_that_does_not_fit_is_shortened_aloud(tmp_path: Path) -> None:
    said = plan(tmp_path, with_context("Llama-3.1-8B", 10_000_000), "24GBx1")
    assert said["recommended"]["fits"] and said["load"]["max_model_len"] < 10_000_000
    assert any("fits no layout" in line for line in said["warnings"])


def test_nothing_fits(tmp_path: Path) -> None:
    said = plan(tmp_path, CONFIGS["Llama-3.1-405B"], "T4x1", max_model_len=2048)
    assert said["recommended"]["tp"] is None and said["recommended"]["fits"] is False and said["commands"] == []
    assert "DOES NOT FIT" in render(said)


@pytest.mark.parametrize(
    ("name", "gpus", "asked", "words"),
    [
        ("Llama-3.1-8B", "H100x1", {"max_model_len": 131072}, "takes 3"),
        ("DeepSeek-V3", "H200x8", {"dtype": "float16"}, "--dtype float16 with a fp8 checkpoint"),
        ("DeepSeek-V3", "A100x8*4", {"max_model_len": 4096}, "no FP8 tensor cores"),
        ("Llama-3.1-8B", "H100x1", {"utilization": 0.98, "max_model_len": 4096}, "leaves 1.6 GiB"),
        ("Llama-3.1-8B", "24GBx1", {"max_model_len": 4096, "utilization": 0.74}, "expandable_segments"),
        ("DeepSeek-V3", "H200x8", {"max_model_len": 4096}, "keeps the whole cache"),
        ("Qwen2.5-3B", "L40Sx8", {"max_model_len": 32768, "concurrency": 100}, "each 0.01 more"),
        ("Llama-3.1-8B", "H100x8", {"max_model_len": 262144}, "more than the model's 131072"),
        ("gemma-3-27b", "H100x8", {"max_model_len": 8192}, "keep only a window"),
    ],
)
def test_traps(tmp_path: Path, name: str, gpus: str, asked: dict[str, Any], words: str) -> None:
    said = plan(tmp_path, with_context(name, 131072), gpus, **asked)
    assert any(words in line for line in said["warnings"]), said["warnings"]


def test_fp8_cache_halves_a_token(tmp_path: Path) -> None:
    config = with_context("Llama-3.1-8B", 131072)
    assert plan(tmp_path, config, kv_dtype="fp8")["model"]["kv_bytes_per_token"] == 65536
    assert plan(tmp_path, config)["assumptions"][0].startswith("GPUs: none named")


def test_float32_checkpoint_runs_in_two_bytes(tmp_path: Path) -> None:
    said = plan(tmp_path, {**CONFIGS["Llama-3.1-8B"], "torch_dtype": "float32"}, "H100x1", max_model_len=4096)
    assert said["model"]["weights_bytes"] == 2 * TOTAL_SIZES["Llama-3.1-8B"]
    assert said["layouts"][0]["weights_bytes_per_gpu"] == TOTAL_SIZES["Llama-3.1-8B"]


def safetensors(path: Path, tensors: dict[str, Any]) -> None:
    header = json.dumps(tensors).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def test_files_are_believed_before_the_config(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 17_000_000_000}, "weight_map": {}})
    )
    said = plan(tmp_path, CONFIGS["Llama-3.1-8B"], "H100x1", max_model_len=4096)
    assert said["model"]["weights_bytes"] == 17_000_000_000
    assert said["model"]["source"] == "model.safetensors.index.json"
    assert any("the files are believed" in line for line in said["warnings"])


def test_headers_are_summed(tmp_path: Path) -> None:
    safetensors(
        tmp_path / "model.safetensors",
        {"a": {"dtype": "BF16", "shape": [3, 5], "data_offsets": [0, 30]}, "__metadata__": {}},
    )
    said = plan(tmp_path, {"model_type": "not-heard-of"}, "H100x1")
    assert said["model"]["weights_bytes"] == 30 and said["model"]["parameters"] == 15
    assert said["model"]["kv_bytes_per_token"] is None
    assert "NOT KNOWN" in render(said)


def test_broken_files_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "model.safetensors.index.json").write_text("{")
    said = plan(tmp_path, CONFIGS["Llama-3.1-8B"], "H100x1", max_model_len=4096)
    assert said["model"]["weights_bytes"] == TOTAL_SIZES["Llama-3.1-8B"]
    assert any("Git LFS pointer" in line for line in said["warnings"])


def test_an_unknown_type_of_usual_shape_is_counted_and_said(tmp_path: Path) -> None:
    said = plan(tmp_path, {**with_context("Llama-3.1-8B", 8192), "model_type": "brand-new"}, "H100x1")
    assert said["model"]["parameters"] == 8030261248 and said["model"]["known"] is False
    assert any("'brand-new' is not known" in line for line in said["warnings"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "no num_hidden_layers"),
        ("[" * 100_000, "is not JSON"),
        ('{"model_type": "llama", "num_hidden_layers": 1e400}', "num_hidden_layers is inf"),
        ('{"model_type": "llama", "num_hidden_layers": 100000000}', "expected 1 to 4,096"),
        ('{"model_type": "llama", "hidden_size": "big"}', "hidden_size is 'big'"),
        ('{"model_type": "llama", "vocab_size": -1}', "vocab_size is -1"),
        ('{"model_type": "llama", "num_attention_heads": 0}', "num_attention_heads is 0"),
        ('{"model_type": "llama", "vocab_size": ' + "9" * 5000 + "}", "is not JSON"),
        ('{"model_type": "jamba", "mamba_expand": NaN}', "mamba_expand is nan"),
        ('{"model_type": "gemma2", "layer_types": [' + "1," * 20000 + "1]}", "has 20001 entries"),
    ],
)
def test_bad_config_is_one_line_and_exit_2(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text)
    done = CliRunner().invoke(command, [str(tmp_path)])
    assert done.exit_code not in (0, None)
    with pytest.raises(ConfigError, match=".") as caught:
        make_plan(Request(tmp_path, parse_gpus([])))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_bad_paths(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "config.json", Path("/proc/self/mem"), Path("a" * 5000)):
        with pytest.raises(ConfigError):
            make_plan(Request(path, parse_gpus([])))


@pytest.mark.parametrize(
    "word", ["", "H100x0", "x8", "H100x8*0", "warp9x8", "H100x8x8", "0GBx8", "H100x" + "9" * 50, "\x1b[31mx8"]
)
def test_bad_gpus(word: str) -> None:
    with pytest.raises(GpuError):
        parse_gpus([word])


def test_gpus() -> None:
    assert str(parse_gpus(["H100x8*2"])) == "2 x 8 H100"
    assert parse_gpus(["h100-80GBx4"]).domain == 4
    assert parse_gpus(["H100-NVLx8"]).domain == 2
    assert parse_gpus(["GB200x4*18"]).domain == 72
    assert parse_gpus(["H200x8"], 3).total == 24
    assert parse_gpus(["H100x8", "H100x8"]).nodes == 2
    assert all(gpu.memory_mib > 14000 for gpu in GPUS.values())
    with pytest.raises(GpuError, match="equal nodes"):
        parse_gpus(["H100x8", "A100x8"])


def test_text_keeps_control_characters_out(tmp_path: Path) -> None:
    config = {
        **with_context("Llama-3.1-8B", 8192),
        "model_type": "evil\x1b[2J\u202e",
        "architectures": ["A\x1b]0;x\x07"],
    }
    text = render(plan(tmp_path, config, "H100x8"))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert text.startswith("USE TP 1 on 1 GPU of one node, 8 replicas")


def test_command_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(with_context("Llama-3.1-8B", 8192)))
    done = CliRunner().invoke(command, [str(tmp_path), "--gpus", "H100x8*2", "--format", "json", "--kv-dtype", "fp8"])
    assert done.exit_code == 0 and json.loads(done.output)["cluster"]["nodes"] == 2
    assert "redacted" not in done.output
    done = CliRunner().invoke(command, [str(tmp_path / "config.json"), "--nodes-count", "2"])
    assert done.output.startswith("USE TP 1") and "redacted" not in done.output
    assert "--gpus" in CliRunner().invoke(command, ["--help"]).output


NUMBERS = st.one_of(
    st.integers(-2, 2**66),
    st.floats(),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.lists(st.integers(0, 9), max_size=3),
)
KEYS = st.sampled_from(
    [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "sliding_window",
        "num_experts",
        "n_routed_experts",
        "moe_intermediate_size",
        "kv_lora_rank",
        "qk_rope_head_dim",
        "layer_types",
        "rope_scaling",
        "mamba_expand",
        "attn_layer_indices",
        "torch_dtype",
        "tie_word_embeddings",
        "num_nextn_predict_layers",
        "hybrid_override_pattern",
        "vision_config",
        "n_shared_experts",
        "first_k_dense_replace",
        "max_position_embeddings",
        "mlp_only_layers",
        "moe_layer_freq",
        "index_topk",
    ]
)
KINDS = st.sampled_from(
    [
        "llama",
        "gemma3_text",
        "gemma4_text",
        "gemma3n_text",
        "deepseek_v3",
        "jamba",
        "nemotron_h",
        "falcon_h1",
        "lfm2",
        "mpt",
        "qwen3_next",
        "mamba",
        "opt",
        "what",
    ]
)
QUANT = st.dictionaries(
    st.sampled_from(
        [
            "quant_method",
            "bits",
            "group_size",
            "weight_block_size",
            "config_groups",
            "modules_to_not_convert",
            "ignore",
            "quant_algo",
        ]
    ),
    st.one_of(
        NUMBERS,
        st.sampled_from(
            [
                "fp8",
                "gptq",
                "awq",
                "mxfp4",
                "compressed-tensors",
                "modelopt",
                "bitsandbytes",
                "NVFP4",
                ["re:(a+)+$", "*"],
            ]
        ),
    ),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=KINDS, values=st.dictionaries(KEYS, NUMBERS, max_size=4), quantisation=QUANT)
def test_no_config_breaks_it(tmp_path: Path, kind: str, values: dict[str, Any], quantisation: dict[str, Any]) -> None:
    base = {
        "model_type": kind,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "vocab_size": 99,
        "intermediate_size": 512,
    }
    config = {**base, **values, "quantization_config": quantisation}
    try:
        said = plan(tmp_path, config, "H100x8", max_model_len=2048)
    except ConfigError as error:
        assert "\n" not in str(error)
    else:
        assert render(said)


SMALL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "first"), [
    (("--gpus", "80GBx1"), 0, "USE TP 1"),
    (("--gpus", "8GBx1"), 1, "DOES NOT FIT"),
])  # fmt: skip
def test_the_exit_code_says_whether_it_fits(tmp_path: Path, arguments: tuple[str, ...], code: int, first: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    done = CliRunner().invoke(command, [str(tmp_path), *arguments], standalone_mode=False)
    assert (done.return_value, done.output[: len(first)]) == (code, first)
    told = CliRunner().invoke(command, [str(tmp_path), *arguments, "--format", "json"], standalone_mode=False)
    assert json.loads(told.output)["exit"] == code


def test_columns_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    (head,) = [line for line in CliRunner().invoke(command, [str(tmp_path), "--gpus", "80GBx1"]).output.splitlines() if "replicas" in line and "TP" in line]  # fmt: skip
    assert "DP" not in head and "PP" not in head
    assert " PP " in CliRunner().invoke(command, [str(tmp_path), "--gpus", "80GBx4"]).output


def test_the_line_to_type_works_beyond_the_models_context(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    shown = CliRunner().invoke(command, [str(tmp_path), "--gpus", "80GBx1", "--max-model-len", "16384"]).output
    assert "  VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve " in shown


def test_what_would_fit_is_computed_and_fits(tmp_path: Path) -> None:
    said = plan(tmp_path, with_context("Llama-3.1-70B", 131072), "H100x4", max_model_len=131072, concurrency=4)[
        "recommended"
    ]
    assert said["fits"] is False
    changes = {change["change"]: change for change in said["would_fit"]}
    assert list(changes) == [
        "--max-model-len 65536 in place of 131072",
        "3 requests of that length at once in place of 4",
        "--kv-cache-dtype fp8",
        "an FP8 checkpoint, or --quantization fp8",
        "more GPUs (--gpus H100x8)",
    ]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("H100x4", {"max_model_len": 65536, "concurrency": 4}),
        ("H100x4", {"max_model_len": 131072, "concurrency": 3}),
        ("H100x4", {"max_model_len": 131072, "concurrency": 4, "kv_dtype": "fp8"}),
        ("H100x8", {"max_model_len": 131072, "concurrency": 4}),
    ]
    for (gpus, changed), change in zip(
        asked, [*list(changes.values())[:3], changes["more GPUs (--gpus H100x8)"]], strict=True
    ):
        best = plan(tmp_path, with_context("Llama-3.1-70B", 131072), gpus, **changed)["recommended"]
        assert best["fits"] and change["why"] in best["why"]
        assert [best[key] for key in ("tp", "pp", "dp", "gpus")] == [change[key] for key in ("tp", "pp", "dp", "gpus")]


def test_more_nodes_where_one_is_full(tmp_path: Path) -> None:
    config = with_context("Llama-3.1-405B", 131072)
    text = render(plan(tmp_path, config, "H100x8", max_model_len=8192))
    assert "Would fit, each by itself" in text
    assert "more GPUs (--gpus H100x8*2): TP 8 x PP 2 on 16 GPUs" in text
    assert "an FP8 checkpoint, or --quantization fp8: TP 8 on 8 GPUs" in text
    assert "max-model-len" not in text.split("Would fit")[1].split("Layouts")[0], "no length makes room for the weights"
    without = plan(tmp_path, config, "A100x8", max_model_len=8192)["recommended"]["would_fit"]
    assert [change["change"] for change in without] == [
        "a 4-bit checkpoint (AWQ or GPTQ)",
        "more GPUs (--gpus A100x8*2)",
    ], "an A100 has no FP8"


def test_nothing_that_was_tried_fits(tmp_path: Path) -> None:
    said = plan(tmp_path, with_context("Llama-3.1-405B", 131072), "2GBx1", max_model_len=4096)
    assert said["recommended"]["would_fit"] == []
    assert "nothing that was tried" in render(said)


def test_what_fits_needs_no_way_out(tmp_path: Path) -> None:
    said = plan(tmp_path, with_context("Llama-3.1-8B", 8192), "H100x8")
    assert "would_fit" not in said["recommended"] and "Would fit" not in render(said)


def test_every_column_but_the_mark_has_a_name(tmp_path: Path) -> None:
    text = render(plan(tmp_path, with_context("Llama-3.1-70B", 131072), "H100x8", max_model_len=32768))
    head, *rows = text.split("Layouts\n")[1].split("\n\n")[0].splitlines()
    assert head.split()[-1] == "fits" and {row.split()[-1] for row in rows} == {"yes", "no"}


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("8xH100", "H100x8"),
        ("8*H100", "H100x8"),
        ("2x8xH100", "H100x8*2"),
        ("8xH100*2", "H100x8*2"),
        ("4x48GB", "48GBx4"),
    ],
)
def test_the_number_before_the_name(word: str, meant: str) -> None:
    assert parse_gpus([meant]).total
    with pytest.raises(GpuError, match=rf"did you mean {meant.replace('*', '[*]')}\?"):
        parse_gpus([word])
