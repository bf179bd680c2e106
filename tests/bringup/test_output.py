"""What counts as news, and whose a line is."""

from __future__ import annotations

import time

from ncdiag.bringup.output import NAME, Output
from ncdiag.model import RankState


def feed(output: Output, text: str) -> bool:
    """Whether it was news."""
    before = output.news_at
    time.sleep(0.002)
    output.feed(False, text.encode())
    return output.news_at > before


def test_the_same_line_with_another_number_is_no_news() -> None:
    output = Output()
    assert feed(output, "Waiting for 1 local, 0 remote core engine proc(s) to start.\n")
    assert not feed(output, "Waiting for 1 local, 0 remote core engine proc(s) to start.\n")
    assert feed(output, "No available shared memory broadcast block found in 60 seconds.\n")
    assert not feed(output, "No available shared memory broadcast block found in 120 seconds.\n")


def test_a_progress_bar_is_news_as_long_as_it_gets_further() -> None:
    output = Output()
    assert feed(output, "Loading:  10%|#  | 1/10 [00:01<00:09]\r")
    assert feed(output, "Loading:  20%|#  | 2/10 [00:02<00:08]\r")
    assert not feed(output, "Loading:  20%|#  | 2/10 [00:05<00:20]\r")


def test_steps_of_a_training_are_news_as_long_as_they_count_on() -> None:
    output = Output()
    assert feed(output, "10:00:01 epoch 0 step 4 loss 8.2332 tok/s 1028\n")
    assert feed(output, "10:00:06 epoch 0 step 5 loss 8.2290 tok/s 1027\n")
    assert not feed(output, "10:00:11 epoch 0 step 5 loss 8.2290 tok/s 1026\n")
    assert feed(output, "10:09:11 epoch 1 step 0 loss 8.2290 tok/s 1026\n")
    assert feed(output, "[rank0] step 7\n") and feed(output, "[rank1] step 8\n")
    assert feed(output, "attempt 1/60: waiting for the store\n")
    assert not feed(output, "attempt 2/60: waiting for the store\n")
    assert feed(output, 'INFO: 192.0.2.1:4000 - "GET /health HTTP/1.1" 200 OK\n')
    assert not feed(output, 'INFO: 192.0.2.1:4001 - "GET /health HTTP/1.1" 200 OK\n')


def test_secrets_are_masked_and_rewritten_lines_show_their_last_state() -> None:
    output = Output()
    output.feed(True, b"HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\nload 1%\rload 2%\n")
    assert output.lines[1] == "load 2%" and "hf_abc" not in output.lines[0]


def test_each_process_gets_its_own_lines_and_the_rank_that_they_tell() -> None:
    output = Output()
    output.feed(
        False,
        b"(Worker pid=11) world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://192.0.2.1:1 backend=gloo\n"
        b"(Worker pid=12) world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://192.0.2.1:1 backend=gloo\n",
    )
    states = [RankState(11, "n", "worker"), RankState(12, "n", "worker")]
    output.lend(states)
    assert [state.rank for state in states] == [0, 1]
    assert all(len(state.log_tail) == 1 and state.log_source == NAME for state in states)
