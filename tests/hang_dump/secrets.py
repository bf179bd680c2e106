"""Secrets of many kinds, made up here, as they stand in environments, command lines and logs."""

from __future__ import annotations

BODY = "q7RkZ2mXw9LtV4cHs8JdN3fB"
"""What every made-up secret holds, so that one search finds any that got through."""

ENVIRONMENT = {
    "HF_TOKEN": f"hf_{BODY}01",
    "VLLM_API_KEY": f"{BODY}02",
    "NCCL_AUTH_TOKEN": f"{BODY}03",
    "RAY_REDIS_PASSWORD": f"{BODY}04",
    "TORCH_WEBHOOK_URL": f"https://hooks.example/{BODY}05",
    "HTTPS_PROXY": f"http://user:{BODY}06@192.0.2.9:3128",
    "VLLM_S3": f"AccountKey={BODY}07==",
    "TORCH_HEADER": f"Bearer {BODY}08",
    "NCCL_SECRET": f"{BODY}09",
}
ARGUMENTS = (
    "--api-key",
    f"{BODY}10",
    f"--hf-token={BODY}11",
    "--proxy",
    f"https://u:{BODY}12@198.51.100.4",
    "--header",
    f"Authorization: Bearer {BODY}13",
)
LOG = (
    f"export AWS_SECRET_ACCESS_KEY={BODY}14",
    f'{{"password": "{BODY}15", "rank": 0}}',
    f"token glpat-{BODY}16 used",
    f"GET /?sig={BODY}17&x=1",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{BODY}18\n{BODY}19\n-----END OPENSSH PRIVATE KEY-----",
    f"nvapi-{BODY}20",
    f"eyJ{BODY}.{BODY}21.sig",
)
