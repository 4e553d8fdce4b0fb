"""The sources are the same each time, and the expected content is that of their records."""

from __future__ import annotations

import json
from collections import Counter

from tests.bench import inputs
from tests.bench.readback import Content


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(inputs.word_lines(50)) == list(inputs.word_lines(50))
    assert list(inputs.orders(50)) == list(inputs.orders(50))
    assert list(inputs.keys(50, 10)) == list(inputs.keys(50, 10))


def test_a_line_has_the_words_that_are_expected() -> None:
    for words, line in inputs.word_lines(1500):
        assert line.decode().split(" ") == words
        assert len(words) == inputs.WORDS_PER_LINE


def test_no_order_is_older_than_the_one_before() -> None:
    times = [json.loads(order)["time"] for *_, order in inputs.orders(3 * inputs.ORDERS_S)]
    assert times == sorted(times)
    assert times[0][:19] != times[-1][:19]


def test_an_order_is_in_the_window_of_its_time() -> None:
    windows = {
        json.loads(order)["time"][11:19]: window[11:]
        for window, *_, order in inputs.orders(11 * inputs.ORDERS_S)
    }
    assert windows["10:05:04"] == "10:05:00"
    assert windows["10:05:05"] == "10:05:05"


def test_orders_are_counted_by_window_and_user_with_their_extremes() -> None:
    rows = [("w1", "ann", 300), ("w1", "ann", 100), ("w1", "bob", 5), ("w2", "ann", 7)]
    assert inputs.order_rows(rows) == {
        ("w1", "ann"): (2, 300, 100),
        ("w1", "bob"): (1, 5, 5),
        ("w2", "ann"): (1, 7, 7),
    }


def test_amounts_are_written_with_two_decimals() -> None:
    assert [inputs.amount(cents) for cents in (5, 1230, 100)] == ["0.05", "12.30", "1.00"]


def test_the_first_keys_fill_the_state_completely() -> None:
    keys = list(inputs.keys(1500, 1000))
    assert len(set(keys[:1000])) == len(set(keys)) == 1000


def test_no_id_repeats_within_half_of_the_rows() -> None:
    """So no epoch has two rows of one id, whose order would be open."""
    rows = list(inputs.upserts(1000))
    assert len({row for row, *_ in rows[:500]}) == len({row for row, *_ in rows[500:]}) == 500


def test_the_last_row_of_an_id_replaces_the_others() -> None:
    assert inputs.upserted([(1, 10, 2), (1, 5, 1)], add=False) == {1: (5, 1)}


def test_the_rows_of_an_id_are_added() -> None:
    assert inputs.upserted([(1, 10, 2), (1, 5, 1)], add=True) == {1: (15, 3)}


def test_content_does_not_depend_on_the_order_of_rows() -> None:
    assert Content.of_rows([("a", 1), ("b", 2)]) == Content.of_rows([("b", 2), ("a", 1)])


def test_swapped_values_are_other_content() -> None:
    assert Content.of_rows([("a", 1), ("b", 2)]) != Content.of_rows([("a", 2), ("b", 1)])


def test_a_record_is_counted_when_the_counts_contain_all_of_it() -> None:
    """Eleven words are two lines of four, and the fourth word of the third is missing."""
    assert inputs.spread_times(Counter({20: 5, 10: 6}), 4) == [10, 20]
