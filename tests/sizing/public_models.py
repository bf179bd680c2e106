"""Facts from published config.json and model.safetensors.index.json files.

`total_size` is the index's own metadata.total_size (bytes of all tensors), or the sum over the headers where noted.
Keys of the configs that do not enter the arithmetic (activation, initialiser, rope, token ids) are left out.
"""

from __future__ import annotations

from typing import Any

BF16: dict[str, Any] = {"torch_dtype": "bfloat16"}


def _llama(hidden: int, width: int, layers: int, heads: int, kv: int, vocab: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": width,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", **more,
    }


def _qwen(kind: str, hidden: int, width: int, layers: int, heads: int, kv: int, vocab: int, **more: Any) -> dict[str, Any]:
    return {**_llama(hidden, width, layers, heads, kv, vocab), "model_type": kind, "use_sliding_window": False, **more}


DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_nextn_predict_layers": 1,
    "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
    "topk_method": "noaux_tc", "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "max_position_embeddings": 163840, "vocab_size": 129280, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "quantization_config": {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128],
    },
}
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_hidden_layers": 24, "num_local_experts": 32,
    "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64, "num_attention_heads": 64,
    "num_key_value_heads": 8, "sliding_window": 128, "attention_bias": True, "tie_word_embeddings": False,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
}
DEEPSEEK_V2_LITE: dict[str, Any] = {
    "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2,
    "n_routed_experts": 64, "num_experts_per_tok": 6, "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "qk_nope_head_dim": 128, "topk_method": "greedy", "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "vocab_size": 102400, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}
DEEPSEEK_V2: dict[str, Any] = {
    **DEEPSEEK_V2_LITE, "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size": 1536,
    "num_hidden_layers": 60, "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 160,
    "q_lora_rank": 1536, "topk_method": "group_limited_greedy",
}
GEMMA3_27B: dict[str, Any] = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16",
    "text_config": {
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "model_type": "gemma3_text",
        "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "sliding_window": 1024,
    },
    "vision_config": {
        "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
        "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
    },
}
GEMMA3_4B: dict[str, Any] = {
    **GEMMA3_27B,
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
}
LLAMA4_SCOUT: dict[str, Any] = {
    "model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"], "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "vocab_size": 202048,
        "attention_chunk_size": 8192, "use_qk_norm": True, "tie_word_embeddings": False,
        "max_position_embeddings": 10485760,
    },
    "vision_config": {
        "model_type": "llama4_vision_model", "hidden_size": 1408, "intermediate_size": 5632, "num_hidden_layers": 34,
        "image_size": 336, "patch_size": 14, "projector_input_dim": 4096, "projector_output_dim": 4096,
        "vision_output_dim": 4096,
    },
}
QWEN2_VL: dict[str, Any] = {
    **_qwen("qwen2_vl", 3584, 18944, 28, 28, 4, 152064), "architectures": ["Qwen2VLForConditionalGeneration"],
    "vision_config": {
        "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size": 3584,
        "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2,
    },
}
QWEN35_MOE: dict[str, Any] = {
    "model_type": "qwen3_5_moe_text", "dtype": "float16", "hidden_size": 2048, "num_hidden_layers": 40,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_value_head_dim": 128, "moe_intermediate_size": 512, "num_experts": 180, "num_experts_per_tok": 8,
    "shared_expert_intermediate_size": 512, "tie_word_embeddings": False, "vocab_size": 248320,
    "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-2-7b": _llama(4096, 11008, 32, 32, 32, 32000, torch_dtype="float16"),
    "Llama-2-13b": _llama(5120, 13824, 40, 40, 40, 32000, torch_dtype="float16"),
    "Llama-2-70b": _llama(8192, 28672, 80, 64, 8, 32000, torch_dtype="float16"),
    "Llama-3.1-8B": _llama(4096, 14336, 32, 32, 8, 128256),
    "Llama-3.1-70B": _llama(8192, 28672, 80, 64, 8, 128256),
    "Llama-3.1-405B": _llama(16384, 53248, 126, 128, 8, 128256),
    "Llama-3.2-3B": _llama(3072, 8192, 28, 24, 8, 128256, head_dim=128, tie_word_embeddings=True),
    "Mistral-7B-v0.1": {**_llama(4096, 14336, 32, 32, 8, 32000), "model_type": "mistral", "sliding_window": 4096},
    "Mistral-7B-v0.3": {**_llama(4096, 14336, 32, 32, 8, 32768), "model_type": "mistral", "sliding_window": None},
    "Mixtral-8x7B": {**_llama(4096, 14336, 32, 32, 8, 32000), "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "Mixtral-8x22B": {**_llama(6144, 16384, 56, 48, 8, 32768), "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "Qwen2.5-3B": _qwen("qwen2", 2048, 11008, 36, 16, 2, 151936, tie_word_embeddings=True),
    "Qwen2.5-7B": _qwen("qwen2", 3584, 18944, 28, 28, 4, 152064),
    "Qwen2.5-14B": _qwen("qwen2", 5120, 13824, 48, 40, 8, 152064),
    "Qwen2.5-32B": _qwen("qwen2", 5120, 27648, 64, 40, 8, 152064),
    "Qwen2.5-72B": _qwen("qwen2", 8192, 29568, 80, 64, 8, 152064),
    "Qwen3-4B": _qwen("qwen3", 2560, 9728, 36, 32, 8, 151936, head_dim=128, tie_word_embeddings=True),
    "Qwen3-8B": _qwen("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128),
    "Qwen3-14B": _qwen("qwen3", 5120, 17408, 40, 40, 8, 151936, head_dim=128),
    "Qwen3-32B": _qwen("qwen3", 5120, 25600, 64, 64, 8, 151936, head_dim=128),
    "Qwen3-30B-A3B": _qwen("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, moe_intermediate_size=768, num_experts_per_tok=8),
    "Qwen3-235B-A22B": _qwen("qwen3_moe", 4096, 12288, 94, 64, 4, 151936, head_dim=128, num_experts=128, moe_intermediate_size=1536, num_experts_per_tok=8),
    "Phi-3-mini-4k": {**_llama(3072, 8192, 32, 32, 32, 32064), "model_type": "phi3", "sliding_window": 2047},
    "phi-4": {**_llama(5120, 17920, 40, 40, 10, 100352), "model_type": "phi3", "sliding_window": None},
    "phi-2": {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200, "tie_word_embeddings": False, "torch_dtype": "float16"},
    "gemma-2-9b": {"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000, "torch_dtype": "bfloat16"},
    "gemma-2-27b": {"model_type": "gemma2", "hidden_size": 4608, "intermediate_size": 36864, "num_hidden_layers": 46, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 256000, "torch_dtype": "bfloat16"},
    "gemma-2-2b": {"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000, "torch_dtype": "bfloat16"},
    "gemma-7b": {"model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256000, "torch_dtype": "bfloat16"},
    "gemma-3-4b": GEMMA3_4B,
    "gemma-3-27b": GEMMA3_27B,
    "gpt-oss-20b": GPT_OSS,
    "gpt-oss-120b": {**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128},
    "DeepSeek-V2-Lite": DEEPSEEK_V2_LITE,
    "DeepSeek-V2": DEEPSEEK_V2,
    "DeepSeek-V3": DEEPSEEK_V3,
    "Llama-4-Scout": LLAMA4_SCOUT,
    "Devstral-Small-2507": {**_llama(5120, 32768, 40, 32, 8, 131072, head_dim=128), "model_type": "mistral", "sliding_window": None},
    "WizardLM-2-8x22B": {**_llama(6144, 16384, 56, 48, 8, 32000), "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "granite-3b-code": _llama(2560, 10240, 32, 32, 32, 49152, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "Qwen-7B": {"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "tie_word_embeddings": False, "torch_dtype": "float16"},
    "Qwen2-VL-7B": QWEN2_VL,
    "falcon-180B": {
        "model_type": "falcon", "alibi": False, "bias": False, "hidden_size": 14848, "multi_query": True,
        "new_decoder_architecture": True, "num_attention_heads": 232, "num_hidden_layers": 80, "num_kv_heads": 8,
        "parallel_attn": True, "vocab_size": 65024, "torch_dtype": "bfloat16",
    },
    "Qwen3.5-25B-REAP": QWEN35_MOE,
}

TOTAL_SIZES: dict[str, int] = {
    "Llama-3.1-8B": 16060522496,
    "Llama-3.1-70B": 141107412992,
    "Mistral-7B-v0.1": 14483464192,
    "Mistral-7B-v0.3": 14496047104,
    "Devstral-Small-2507": 47144806400,
    "Mixtral-8x7B": 93405585408,
    "WizardLM-2-8x22B": 281241268224,
    "Qwen-7B": 15442649088,
    "Qwen2.5-3B": 6171877376,
    "Qwen2.5-7B": 15231233024,
    "Qwen2.5-32B": 65527752704,
    "Qwen2.5-72B": 145412407296,
    "Qwen2-VL-7B": 16582751232,
    "Qwen3-4B": 8044936192,
    "Qwen3-8B": 16381470720,
    "Qwen3-30B-A3B": 61064245248,
    "Qwen3.5-25B-REAP": 50182743296,
    "Phi-3-mini-4k": 7642159104,
    "phi-4": 29319014400,
    "phi-2": 5559367680,
    "gemma-2-2b": 5228683776,
    "gemma-3-4b": 8600158944,
    "gemma-3-27b": 54864813280,
    "gpt-oss-20b": 13761264768,
    "gpt-oss-120b": 65248815744,
    "granite-3b-code": 6965007360,
    "falcon-180B": 359045130240,
    # numbers by type in the files' headers: 3,918,786,560 BF16, 680,571,043,840 F8_E4M3, 41,555,600 F32
    "DeepSeek-V3": 2 * 3918786560 + 680571043840 + 4 * 41555600,
}
"""metadata.total_size of model.safetensors.index.json as published, except where a comment says otherwise."""

KV_BYTES_PER_TOKEN: dict[str, int] = {  # 2 x layers x KV heads x head_dim x 2 bytes; MLA: layers x (rank + rope) x 2
    "Llama-2-7b": 524288,
    "Llama-2-70b": 327680,
    "Llama-3.1-8B": 131072,
    "Llama-3.1-70B": 327680,
    "Qwen2.5-7B": 57344,
    "Qwen3-8B": 147456,
    "Mixtral-8x7B": 131072,
    "gemma-3-27b": 507904,
    "DeepSeek-V2-Lite": 31104,
    "DeepSeek-V3": 70272,
    "gpt-oss-120b": 73728,
}
