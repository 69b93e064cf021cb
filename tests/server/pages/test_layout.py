"""The layout of graphs: sources before results, few crossings, and nothing over another."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

from tidemill.server.pages.layout import Edge, Layout, lay_out


def _edges(*pairs: str) -> list[Edge]:
    return [Edge(*pair.split()) for pair in pairs]


def _crossings(layout: Layout) -> int:
    """Count the pairs of links between two layers that cross."""
    links = []
    for edge, bends in layout.bends.items():
        points = [layout.places[edge.source], *bends, layout.places[edge.target]]
        links += [(left, right) for left, right in pairwise(points) if left[0] + 1 == right[0]]
    return sum(a[0][0] == b[0][0] and (a[0][1] - b[0][1]) * (a[1][1] - b[1][1]) < 0 for a, b in combinations(links, 2))


def test_a_thing_is_behind_all_its_sources():
    """A reader follows the data from left to right."""
    layout = lay_out(list("abcd"), _edges("a b", "b c", "a d", "c d"))

    assert {name: layer for name, (layer, _) in layout.places.items()} == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert layout.layers == 4


def test_a_long_edge_has_a_place_of_its_own_in_each_layer_that_it_passes():
    """An edge behind the box of another thing would say that it leads there."""
    layout = lay_out(list("abcd"), _edges("a b", "b c", "c d", "a d"))
    bends = layout.bends[Edge("a", "d")]

    assert [layer for layer, _ in bends] == [1, 2]
    assert all(abs(row - layout.places[name][1]) >= 1 for (_, row), name in zip(bends, "bc", strict=True))


def test_crossings_that_an_order_avoids_are_avoided():
    """Two chains that were declared crosswise are drawn side by side."""
    layout = lay_out(list("abxy"), _edges("a y", "b x"))

    assert _crossings(layout) == 0


def test_a_circle_is_drawn_with_one_edge_backwards():
    """A program that reads what it writes is no error."""
    layout = lay_out(list("abc"), _edges("a b", "b c", "c a"))

    assert sorted(layer for layer, _ in layout.places.values()) == [0, 1, 2]


def test_no_two_things_are_at_one_place_in_any_graph():
    """Places of one layer are a row apart, and none is above the picture."""
    for seed in range(50):
        chance = random.Random(seed)
        nodes = [f"n{number}" for number in range(chance.randint(1, 40))]
        edges = [Edge(*chance.choices(nodes, k=2)) for _ in range(chance.randint(0, 80))]
        layout = lay_out(nodes, edges)
        taken = [*layout.places.values(), *(bend for bends in layout.bends.values() for bend in bends)]
        for one, other in combinations(sorted(taken), 2):
            assert one[0] != other[0] or other[1] - one[1] > 0.999, (seed, one, other)
        assert all(0 <= row <= layout.rows - 1 + 1e-9 for _, row in taken)
        assert lay_out(nodes, edges) == layout


def test_an_edge_to_a_thing_that_is_not_shown_is_left_out():
    """A graph that was cut has such edges."""
    assert lay_out(["a"], _edges("a b")).bends == {}
