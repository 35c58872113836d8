"""Lines of logs begin with their member."""

from __future__ import annotations

from elasticjob_cli.jobs.logs import prefix
from elasticjob_client.logs import LogLine


def test_lines_are_marked_with_member_and_rank_and_a_rank_keeps_its_color() -> None:
    line = LogLine("a-worker-1", "worker", 1, 3, "text")
    assert prefix(line, colored=False) == "[worker-1 rank 3]"
    assert prefix(LogLine("a-ps-0", "ps", 0, None, ""), colored=False) == "[ps-0]"
    same = LogLine("a-worker-5", "worker", 5, 13, "")
    assert (
        prefix(line, colored=True).split("[w")[0]
        == prefix(same, colored=True).split("[w")[0]
        == "\033[35m"
    )
