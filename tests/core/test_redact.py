from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncdiag import redact

SECRETS = {
    "HF_TOKEN": "hf_" + "aBcD1234" * 4,
    "HUGGING_FACE_HUB_TOKEN": "plain-value-no-form",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzzz",
    "AWS_ACCESS_KEY_ID": "AKIA" + "ABCDEFGH12345678",
    "OPENAI_API_KEY": "sk-proj-" + "a1b2c3d4" * 4,
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "VLLM_API_KEY": "let-me-in",
    "GITHUB_TOKEN": "ghp_" + "Zz09" * 9,
    "SLACK_BOT_TOKEN": "xoxb-" + "123456789012-abcdef",
    "GOOGLE_API_KEY": "AIza" + "Sy0123456789abcdefghijklmnopqrstu",
    "NGC_API_KEY": "nvapi-" + "abcdefghij0123456789",
    "DB_PASSWORD": "hunter2!",
    "RAY_AUTH_TOKEN": "deadbeef-dead-beef",
    "REDIS_PASSWORD": "5241590000000000",
    "DATABASE_DSN": "postgres://user:s3cr3tpw@db/x",
    "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountKey=abcdefghijklmnop1234==",
    "JWT_SECRET": "qwertyuiop",
}
FORMS = [
    "Authorization: Bearer abcdef0123456789abcdef",
    "https://user:s3cr3tpw@proxy.example:3128/",
    "token=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF123",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
    "--api-key let-me-in-1",
    "--api-key=let-me-in-1",
    "--hf-token 'let-me-in-1'",
    "password: let-me-in-1",
    '{"api_key": "let-me-in-1"}',
    "export MY_SECRET=let-me-in-1",
    "https://x.blob/?sv=1&sig=abcdEFGH0123456789%2Babcd",
]
GIVEN_AWAY = ("s3cr3tpw", "let-me-in-1", "abcdef0123456789abcdef", "eyJhbG", "MIIEow", "abcdEFGH0123456789")
HARMLESS = [
    "max_num_batched_tokens=8192",
    "--max-num-batched-tokens 8192",
    "VLLM_WORKER_MULTIPROC_METHOD=spawn",
    "tokenizer: Qwen/Qwen3-8B",
    "PWD=/root",
    "RAY_AUTH_MODE=disabled",
    "total_tokens: 5",
    "GPU KV cache size: 23,968 tokens",
    "Token authentication is enabled for this Ray cluster",
    "NCCL INFO Bootstrap : Using eth0:192.0.2.7<0>",
    "SSH_AUTH_SOCK=/run/agent.1",
    "kv_cache_dtype=auto",
    "the token expired yesterday",
    "task-scheduler-worker-0001",
    "Initializing a V1 LLM engine (v0.32.0) with config: model='/m', skip_tokenizer_init=False, tokens_per_block=16",
]


@pytest.mark.parametrize("name", SECRETS)
def test_environment(name: str) -> None:
    secret = SECRETS[name]
    assert secret not in redact.environ({name: secret})[name]
    assert secret not in redact.text(f"{name}={secret}")
    assert secret not in redact.text(f'"{name}": "{secret}",')
    assert secret not in redact.nul_separated(f"A=b\0{name}={secret}\0C=d", arguments=False)
    assert secret not in json.dumps(redact.data({"env": {name: secret}, "list": [f"{name}={secret}"]}))


@pytest.mark.parametrize("line", FORMS)
def test_forms(line: str) -> None:
    masked = redact.text("before " + line + " after")
    assert not [part for part in GIVEN_AWAY if part in masked], masked
    assert masked.startswith("before ") and masked.endswith("after")


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_text_stays(line: str) -> None:
    assert redact.text(line) == line


def test_command_lines() -> None:
    masked = redact.argv(["vllm", "serve", "/m", "--api-key", "let-me-in", "--hf-token=x1", "--port", "8000"])
    assert masked == ["vllm", "serve", "/m", "--api-key", redact.MASK, "--hf-token=" + redact.MASK, "--port", "8000"]


@given(st.text(max_size=400))
def test_never_raises_and_is_stable(text: str) -> None:
    once = redact.text(text)
    assert redact.text(once) == once


@pytest.mark.parametrize(
    "text",
    ["token " + "x" * 200_000, "a." * 100_000 + "://token", "x-" * 100_000 + "token"],
    ids=["word", "dots", "dashes"],
)
def test_long_words_cost_no_more_than_their_length(text: str) -> None:
    began = time.process_time()
    redact.text(text)
    assert time.process_time() - began < 10
