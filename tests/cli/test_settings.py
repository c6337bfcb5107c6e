"""Settings come from options, the environment or a file, and remember where from."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.cli.options import format_duration
from balance_analysis.cli.settings import resolve
from balance_analysis.text import to_duration, without_credentials
from tests.cli.running import run

FILE = """
[export.main]
url = ["https://one.example.org", "https://me:secret@two.example.org"]
archive = "/data/main"
lag = "5m"
since = 2023-04-01
fill-gaps = true
page_size = 1000

[export.other]
archive = "/data/other"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "export.toml"
    path.write_text(FILE)
    return path


def settings(options=(), environ=(), **where):
    return resolve(dict(options), environ=dict(environ), **where)


def show(*arguments, **options):
    return run("config", "show", *arguments, **options)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("7d", 604_800), ("1w", 604_800), ("0s", 0)],
)
def test_a_duration_is_a_number_with_its_unit(text, seconds):
    assert to_duration(text) == dt.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "90", "h", "-1h", "1.5h", "2 hours", "9" * 30 + "d", "\u0661h"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"10m|too long"):
        to_duration(text)


@given(st.integers(0, 10**9))
def test_a_duration_reads_as_it_is_shown(seconds):
    duration = dt.timedelta(seconds=seconds)
    assert to_duration(format_duration(duration)) == duration


def test_an_option_wins_over_the_environment_and_that_over_the_file(file):
    environ = {"BALANCE_ANALYSIS_LAG": "3m", "BALANCE_ANALYSIS_WORKERS": "2"}
    found = settings({"workers": 1}, environ, config=file, name="main")
    assert (found["workers"].value, found["workers"].origin) == (1, "option --workers")
    assert found["lag"].value == dt.timedelta(minutes=3)
    assert found["lag"].origin == "environment BALANCE_ANALYSIS_LAG"
    assert (found["page_size"].value, found["page_size"].origin) == (1000, f"{file} [export.main]")
    assert (found["overlap"].value, found["overlap"].origin) == (
        dt.timedelta(minutes=10),
        "default",
    )


def test_an_option_that_switches_off_wins_over_a_file_that_switches_on(file):
    assert settings(config=file, name="main")["fill_gaps"].value is True
    assert settings({"fill_gaps": False}, config=file, name="main")["fill_gaps"].value is False


def test_a_list_in_the_environment_is_separated_by_blanks():
    found = settings(environ={"BALANCE_ANALYSIS_ACCOUNT_TYPE": "general bond"})
    assert found["account_type"].value == ["general", "bond"]


def test_a_date_in_the_file_is_a_moment(file):
    assert settings(config=file, name="main")["since"].value == "2023-04-01"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[export.x]\nlagg = '1m'", "lagg is no setting; there are url"),
        ("[export.x]\nfill-gap = true", "fill_gap is no setting; there are"),
        ("[export.x]\nlag = 5", "[export.x] lag: '5' is no duration"),
        ("[export.x]\nworkers = 0", "workers: Expected `int` >= 1"),
        ("[export.x]\npartition = 'year'", "day or month or hour"),
        ("[export.x]\nfill_gaps = 'perhaps'", "fill_gaps: Expected `bool`"),
        ("[export.x]\nurl = [1]", "url: Expected `str`"),
        ("[export.x]\nasset_id = ['a', 'b']", "asset_id: one value a section, not a list"),
        ("[export.y]", "has no [export.x], but y"),
        ("lag = '1m'", "settings stand under [export.NAME]"),
        ("[export]\nx = 1", "settings stand under [export.NAME]"),
        ("", "settings stand under [export.NAME]"),
        ("[", "is not TOML"),
    ],
)
def test_a_file_that_says_what_nobody_reads_is_refused(content, says, tmp_path):
    (tmp_path / "x.toml").write_text(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        settings(config=tmp_path / "x.toml", name="x")
    assert says in str(caught.value)
    assert "x.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("BALANCE_ANALYSIS_OVERLP", "BALANCE_ANALYSIS_OVERLP is no setting; there are"),
        ("BALANCE_ANALYSIS_LAG", "BALANCE_ANALYSIS_LAG: 'soon' is no duration"),
    ],
)
def test_a_variable_that_nobody_reads_is_refused_and_others_are_left_alone(name, says):
    with pytest.raises(ValueError, match=says):
        settings(environ={name: "soon"})
    assert settings(environ={"LAG": "x", "BALANCE_ANALYSIS_LAG": ""})["lag"].origin == "default"


def test_a_name_may_be_left_out_where_there_is_only_one(file, tmp_path):
    (tmp_path / "x.toml").write_text("[export.only]\nlag = '2m'")
    assert settings(config=tmp_path / "x.toml")["lag"].value == dt.timedelta(minutes=2)
    with pytest.raises(ValueError, match="main, other: name one"):
        settings(config=file)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ("see http://u@h/p?a=1&api_key=abc&b=2 now", "see http://***@h/p?a=1&api_key=***&b=2 now"),
        ("https://node.example.org/x?a=1", "https://node.example.org/x?a=1"),
        ("who@where", "who@where"),
    ],
)
def test_credentials_are_not_shown(text, shown):
    assert without_credentials(text) == shown


def test_config_show_tells_each_value_and_where_it_comes_from(file):
    said = show("main", "--config", file, env={"BALANCE_ANALYSIS_WORKERS": "3"}).stdout
    lines = {line.split()[0]: line for line in said.splitlines()}
    assert lines["lag"].split(maxsplit=2)[1:] == ["5m", f"{file} [export.main]"]
    assert lines["workers"].split(maxsplit=2)[1:] == ["3", "environment BALANCE_ANALYSIS_WORKERS"]
    assert lines["overlap"].split() == ["overlap", "10m", "default"]
    assert "***@two.example.org" in said
    assert "secret" not in said


def test_config_show_as_json_has_every_setting(file):
    found = json.loads(show("main", "--config", file, "--format", "json").stdout)
    assert found["lag"] == {"value": "5m", "from": f"{file} [export.main]"}
    assert set(found) == set(settings())


def test_config_show_of_a_missing_name_or_file_is_usage(file, tmp_path):
    assert "no [export.x]" in show("x", "--config", file, code=2).stderr
    assert "none.toml" in show("x", "--config", tmp_path / "none.toml", code=2).stderr
    assert "--config FILE" in show("x", code=2).stderr
