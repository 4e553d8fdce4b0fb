"""The report shows every epoch and kill, in words, loads nothing and lets no text become markup."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from infra.demo.report import Kill, write_report
from infra.demo.timeline import tries_of
from sluicegate.packaged_job import Finding, Verification

MS = 1_000_000
START = 1_767_225_600_000 * MS
EXACT = Verification({"source lines": 1234})


def span(trace: str, name: str, start: float, end: float, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "trace_id": trace,
        "span_id": more.pop("id", f"{trace}-{name}-{start}"),
        "parent_id": more.pop("parent", f"{trace}-root"),
        "name": name,
        "start_ns": START + int(start * MS),
        "end_ns": START + int(end * MS),
        "error": more.pop("error", None),
        "attributes": more,
    }


def whole(epoch: int, start: float, *, replayed: bool = False) -> list[dict[str, Any]]:
    """Return the spans of an epoch that came to its end."""
    trace = f"t{start}"
    staged = [
        span(trace, "stage", start + 1, start + 11, epoch=epoch, id=f"{trace}-stage"),
        span(trace, "stage chunk", start + 2, start + 9, parent=f"{trace}-stage", rows=77),
        span(trace, "decide", start + 11, start + 12, epoch=epoch, rows=154),
    ]
    return [
        *([] if replayed else staged),
        span(
            trace,
            "apply",
            start + 12,
            start + 20,
            epoch=epoch,
            sink="mysql.t",
            rows=77,
            id=f"{trace}-a",
        ),
        span(trace, "commit", start + 15, start + 20, parent=f"{trace}-a", sink="mysql.t", part=0),
        span(trace, "epoch", start, start + 22, epoch=epoch, replayed=replayed, id=f"{trace}-root"),
    ]


KILLS = [
    Kill("before-decide", 1, START + 115 * MS, "staged only", "run again"),
    Kill("after-decide", 2, START + 315 * MS, "the record", "replayed from its record"),
]
SPANS = [
    *whole(0, 0),
    span("k1", "stage", 101, 111, epoch=1),
    *whole(1, 200),
    span("k2", "stage", 301, 311, epoch=2),
    span("k2", "decide", 311, 312, epoch=2, rows=154),
    *whole(2, 400, replayed=True),
]


def page(folder: Path, **more: Any) -> str:  # noqa: ANN401
    given = {
        "spans": SPANS,
        "kills": KILLS,
        "verification": EXACT,
        "facts": {"lines sent": "1,234"},
    }
    write_report(folder / "report.html", **{**given, **more})
    return (folder / "report.html").read_text()


def test_every_epoch_and_kill_is_on_the_page(tmp_path: Path) -> None:
    text = page(tmp_path)
    rows = re.findall(r'<div class="row (\w+)".*?class=name>(?:<em>([\w ]+)</em>)?(\d+)', text)
    assert rows == [
        ("committed", "", "0"),
        ("killed", "killed", "1"),
        ("committed", "run again", "1"),
        ("killed", "killed", "2"),
        ("replayed", "replayed", "2"),
    ]
    for kill in KILLS:
        assert f"<code>{kill.point}</code>" in text
        assert f"<td>{kill.durable}<td>{kill.restart}" in text
    assert text.count("class=mark") == 2 * len(KILLS), "in the whole run and in the epoch's row"
    assert "1,234" in text


def test_phases_have_their_times(tmp_path: Path) -> None:
    text = page(tmp_path)
    for phase in ("epoch", "stage", "decide", "apply mysql.t", "apply mysql.t · commit"):
        assert f"</i>{phase}<td" in text
    assert "epoch 0: stage, 10.0 ms, 77 rows" in text
    assert "apply mysql.t, 8.0 ms, 77 rows (commit 5.0 ms)" in text


def test_the_headline_is_the_verdict(tmp_path: Path) -> None:
    assert "<h1>Exact.</h1>" in page(tmp_path)
    bad = Verification({}, (Finding("lost", 3, ("a row",)), Finding("wrong", 1)))
    text = page(tmp_path, verification=bad)
    assert "<h1>Not exact.</h1>" in text
    assert "3 lost; 1 wrong" in text
    assert "<code>a row</code>" in text


def test_a_restart_that_did_something_else_is_reported(tmp_path: Path) -> None:
    wrong = [Kill("before-decide", 1, KILLS[0].at_ns, "-", "replayed from its record")]
    assert "but the trace shows: run again" in page(tmp_path, kills=wrong)


def test_a_restart_that_is_not_in_the_trace_is_not_claimed(tmp_path: Path) -> None:
    assert "not in the trace" in page(tmp_path, spans=SPANS[:5])


@pytest.mark.parametrize("where", ["kill", "fact", "finding", "span", "error"])
def test_no_text_becomes_markup(tmp_path: Path, where: str) -> None:
    evil = '"><script>alert(1)</script>'
    damages: dict[str, dict[str, Any]] = {
        "kill": {"kills": [Kill(evil, 1, KILLS[0].at_ns, evil, evil)]},
        "fact": {"facts": {evil: evil}},
        "finding": {"verification": Verification({evil: 1}, (Finding(evil, 1, (evil,)),))},
        "span": {"spans": [span("x", "apply", 0, 1, epoch=1, sink=evil)]},
        "error": {"spans": [span("x", "stage", 0, 1, epoch=1, error=evil)]},
    }
    text = page(tmp_path, **damages[where])
    assert "<script" not in text
    assert "&lt;script&gt;" in text


class _References(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}" for name, _ in attrs if name in {"src", "href", "action"}]


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    text = page(tmp_path)
    references = _References()
    references.feed(text)
    assert references.found == []
    assert "url(" not in text
    assert "@import" not in text


def test_a_run_without_spans_or_kills_still_has_a_page(tmp_path: Path) -> None:
    text = page(tmp_path, spans=[], kills=[])
    assert "The trace holds no epoch" in text
    assert "Nothing was killed in this run" in text


def test_a_killed_attempt_ends_at_its_kill() -> None:
    killed = tries_of(SPANS, [kill.at_ns for kill in KILLS])[1]
    assert (killed.epoch, killed.killed_ns, killed.end_ns) == (1, KILLS[0].at_ns, KILLS[0].at_ns)


def test_a_failed_attempt_is_not_shown_as_killed() -> None:
    failed = [span("f", "stage", 0, 5, epoch=3), span("f", "epoch", 0, 6, epoch=3, error="no")]
    (one,) = tries_of(failed, [START + 50 * MS])
    assert one.replayed is None
    assert one.killed_ns is None


def test_spans_of_no_epoch_are_left_out() -> None:
    assert tries_of([span("x", "preflight", 0, 1)], []) == []


def test_steps_of_an_apply_that_was_cut_short_are_shown() -> None:
    spans = [span("x", "stage", 0, 1, epoch=1), span("x", "begin", 2, 3, sink="s", parent="gone")]
    (one,) = tries_of(spans, [START + 4 * MS])
    assert one.bars[-1].said == "apply s, cut short after begin 1.0 ms"
