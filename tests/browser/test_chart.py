"""The chart draws its data: each step from its moment on, nothing where unknown."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BEGIN = 1_680_307_200_000_000
DAY = 86_400_000_000
LENGTH = 20_000
DRAW = """async ([series, options]) => {
    const { draw } = await import("/static/chart.js");
    const box = document.getElementById("drawn") ?? document.createElement("div");
    box.id = "drawn";
    box.style.width = "700px";
    document.body.append(box);
    draw(box, {series, label: "drawn", ...options});
    const paths = [...box.querySelectorAll(".line, .bar")].map((one) => one.getAttribute("d"));
    const texts = [...box.querySelectorAll("text")];
    return {paths, width: box.querySelector(".plot").getBBox().width,
        ticks: texts.filter((one) => one.matches(".ends")).map((one) => one.textContent),
        times: texts.filter((one) => !one.matches(".ends")).map((one) => one.textContent),
        places: texts.map((one) => one.getBoundingClientRect()).map((one) => [one.left, one.right]),
        missing: box.querySelector(".gap").getAttribute("d")};
}"""


@pytest.fixture(scope="module")
def page(visit, sample_node):
    return visit(sample_node)


def draw(page, *series, start=BEGIN, end=BEGIN + DAY, **options):
    named = [{"ink": f"s{n}", **one} for n, one in enumerate(series)]
    return page.evaluate(DRAW, [named, {"start": start, "end": end, **options}])


def inks(corners):
    """The ink of lines between corners: horizontal stretches by y, vertical ones by x."""
    lying, standing = set(), {}
    for (x, y), (to_x, to_y) in itertools.pairwise(corners):
        if x != to_x:
            lying.add((x, to_x, y))
        elif y != to_y:
            standing.setdefault(x, set()).update((y, to_y))
    return lying, {x: (min(heights), max(heights)) for x, heights in standing.items()}


def corners_of(path):
    """The corners of each unbroken part of a path."""
    parts, x, y = [], 0.0, 0.0
    for letter, first, second in re.findall(r"([MHV])([-\d.e]+)(?: ([-\d.e]+))?", path):
        x = x if letter == "V" else float(first)
        y = float(second) if letter == "M" else float(first) if letter == "V" else y
        parts += [[]] if letter == "M" else []
        parts[-1].append((x, y))
    return parts


# Some steps fall into one pixel.
MOMENTS = st.builds(lambda far, near: 5000 * far + near, st.integers(-1, 5), st.integers(0, 9))
steps = st.lists(
    st.tuples(MOMENTS, st.none() | st.integers(0, 9)),
    min_size=2,
    max_size=120,
    unique_by=lambda step: step[0],
)


@settings(max_examples=25)
@given(steps)
def test_steps_are_drawn_from_their_moment_to_the_next_and_not_where_unknown(page, steps):
    steps = sorted(steps, key=lambda step: step[0])
    picture = draw(
        page,
        {"times": [BEGIN + t for t, _ in steps], "values": [v for _, v in steps]},
        {"times": [BEGIN], "values": [0]},
        {"times": [BEGIN], "values": [9]},
        end=BEGIN + LENGTH,
    )
    path, lowest, highest = picture["paths"]
    low, high = (corners_of(one)[0][0][1] for one in (lowest, highest))

    def place(time):
        return int(2 * min(max(time / LENGTH, 0), 1) * picture["width"] + 0.5) / 2

    ends = [*(time for time, _ in steps[1:]), LENGTH]
    expected, held = [], None
    for (time, value), stop in zip(steps, ends, strict=True):
        if value is not None and stop > 0 and time < LENGTH:
            expected += [[]] if held is None else []
            expected[-1] += [(place(time), value), (place(stop), value)]
        held = value if stop > 0 else None
    drawn = [
        [(x, round(9 * (y - low) / (high - low))) for x, y in part] for part in corners_of(path)
    ]
    assert [inks(part) for part in drawn] == [inks(part) for part in expected]


def test_a_path_grows_with_the_width_and_not_with_the_rows(page):
    times = [BEGIN + n * DAY // 10_000 for n in range(10_000)]
    values = [n * 7919 % 10_007 for n in range(10_000)]
    (path,) = draw(page, {"times": times, "values": values})["paths"]
    assert len(re.findall("[MHV]", path)) < 5 * 2 * 700


@pytest.mark.parametrize(
    ("length", "first", "second"),
    [
        (100, "1 Apr", "00:00:00.00005"),
        (3600 * 1_000_000, "1 Apr", "00:10"),
        (30 * DAY, "1 Apr", "8 Apr"),
        (9 * 365 * DAY, "2024", "2026"),
    ],
)
def test_time_ticks_are_at_whole_calendar_units_and_never_touch(page, length, first, second):
    picture = draw(page, {"times": [BEGIN], "values": [1]}, end=BEGIN + length)
    assert picture["times"][:2] == [first, second]
    places = sorted(picture["places"][len(picture["ticks"]) :])
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(places))


@pytest.mark.parametrize(
    ("values", "options", "ticks"),
    [
        ([0, 7], {}, ["0", "2", "4", "6"]),
        ([1e30, 1e30], {}, ["9.5E29", "1E30", "1.05E30"]),
        ([None, None], {}, []),
        ([0, 1], {"levels": ["no", "yes"]}, ["no", "yes"]),
    ],
)
def test_values_have_round_ticks(page, values, options, ticks):
    picture = draw(page, {"times": [BEGIN, BEGIN + DAY // 2], "values": values}, **options)
    assert picture["ticks"] == ticks


@settings(max_examples=15)
@given(st.floats(1e-18, 1e38), st.floats(1e-18, 1e38))
def test_any_range_has_a_few_ticks_with_different_texts(page, low, high):
    picture = draw(page, {"times": [BEGIN, BEGIN + DAY // 2], "values": [low, high]})
    assert 2 <= len(set(picture["ticks"])) == len(picture["ticks"]) <= 10


def test_bars_fill_their_periods_from_0_up_and_down(page):
    times = [BEGIN - DAY, BEGIN, BEGIN + DAY]
    periods = {"times": times, "ends": [time + DAY for time in times]}
    picture = draw(
        page,
        {**periods, "values": [9, 4, None]},
        {**periods, "values": [-9, -8, 0]},
        end=BEGIN + 2 * DAY,
        bars=True,
    )
    shape = r"M(\S+) (\S+)V(\S+)h(\S+)V\S+Z"
    ((x, zero, top, width),) = (map(float, one) for one in re.findall(shape, picture["paths"][0]))
    ((_, same, bottom, _),) = (map(float, one) for one in re.findall(shape, picture["paths"][1]))
    assert (x, zero) == (0, same)
    assert width == pytest.approx(0.85 * picture["width"] / 2)
    assert (bottom - zero) == pytest.approx(2 * (zero - top))


def test_a_gap_is_hatched_in_its_place_and_visible_even_if_short(page):
    gap = BEGIN + DAY // 4, BEGIN + DAY // 4 + 1
    picture = draw(page, {"times": [], "values": []}, gaps=[gap])
    place = re.fullmatch(r"M(\S+) 0v\d+h3v-\d+Z", picture["missing"])[1]
    assert float(place) == pytest.approx(picture["width"] / 4)
