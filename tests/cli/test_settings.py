"""Settings come from options, the environment or a file, and tell where from."""

from __future__ import annotations

import json

import pytest

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
NODE = "http://127.0.0.1:1"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "export.toml"
    path.write_text(FILE)
    return path


def show(*arguments, **options):
    return run("config", "show", *arguments, **options)


def settings(*arguments, **environment):
    """What holds, as pairs of a value and where it comes from."""
    found = json.loads(show(*arguments, "--format", "json", env=environment).stdout)
    return {name: (each["value"], each["from"]) for name, each in found.items()}


def test_the_environment_wins_over_the_file_and_that_over_the_default(file):
    environment = {"BALANCE_ANALYSIS_LAG": "3m", "BALANCE_ANALYSIS_WORKERS": "2"}
    found = settings("main", "--config", file, **environment)
    assert found["workers"] == ("2", "environment BALANCE_ANALYSIS_WORKERS")
    assert found["lag"] == ("3m", "environment BALANCE_ANALYSIS_LAG")
    assert found["page_size"] == ("1000", f"{file} [export.main]")
    assert found["fill_gaps"] == ("true", f"{file} [export.main]")
    assert found["overlap"] == ("10m", "default")


@pytest.mark.parametrize(
    ("option", "variable", "says"),
    [
        ("--lag=5", "3m", "option --lag: '5' is not a duration"),
        ("--lag=1m", "3m", "127.0.0.1:1"),
        ("--workers=1", "soon", "environment BALANCE_ANALYSIS_LAG: 'soon' is not a duration"),
    ],
)
def test_an_option_wins_over_the_environment_and_what_is_wrong_tells_where(option, variable, says):
    environment = {"BALANCE_ANALYSIS_LAG": variable, "BALANCE_ANALYSIS_URL": NODE}
    code = 4 if says == "127.0.0.1:1" else 2
    found = run("export", NODE, "x", option, "--dry-run", code=code, env=environment)
    assert says in found.stderr


def test_a_list_in_the_environment_is_separated_by_blanks_and_nothing_says_nothing():
    found = settings(BALANCE_ANALYSIS_ACCOUNT_TYPE="general bond", BALANCE_ANALYSIS_LAG="", LAG="x")
    assert found["account_type"][0] == "general bond"
    assert found["lag"] == ("1m", "default")


def test_a_file_may_say_that_what_an_export_brings_is_confirmed(tmp_path):
    (tmp_path / "x.toml").write_text("[export.x]\nconfirm = 2")
    assert settings("--config", tmp_path / "x.toml")["confirm"][0] == "2"
    (tmp_path / "x.toml").write_text("[export.x]\nconfirm = 3")
    said = show("--config", tmp_path / "x.toml", code=2).stderr
    assert "[export.x] confirm" in said


def test_a_date_in_the_file_is_a_moment(file):
    assert settings("main", "--config", file)["since"][0] == "2023-04-01"


def test_home_may_be_written_short_in_the_file(tmp_path):
    (tmp_path / "x.toml").write_text("[export.x]\nassets = '~/assets.toml'")
    found = settings("--config", tmp_path / "x.toml", HOME="/home/me")
    assert found["assets"][0] == "/home/me/assets.toml"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[export.x]\nlagg = '1m'", "lagg is not a setting; the settings are "),
        ("[export.x]\nfill-gap = true", "fill_gap is not a setting; the settings are"),
        ("[export.x]\nlag = 5", "[export.x] lag: '5' is not a duration"),
        ("[export.x]\nworkers = 0", "[export.x] workers"),
        ("[export.x]\nworkers = true", "[export.x] workers"),
        ("[export.x]\nmax_requests_per_second = 0", "[export.x] max_requests_per_second"),
        ("[export.x]\npartition = 'year'", "'day', 'month', 'hour'"),
        ("[export.x]\nfill_gaps = 'perhaps'", "[export.x] fill_gaps"),
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
    said = show("x", "--config", tmp_path / "x.toml", code=2).stderr
    assert says in said
    assert "x.toml" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("BALANCE_ANALYSIS_OVERLP", "BALANCE_ANALYSIS_OVERLP is not a setting; the settings are"),
        ("BALANCE_ANALYSIS_DRY_RUN", "BALANCE_ANALYSIS_DRY_RUN is not a setting; the settings are"),
        ("BALANCE_ANALYSIS_LAG", "BALANCE_ANALYSIS_LAG: 'soon' is not a duration"),
    ],
)
def test_a_variable_that_nobody_reads_is_refused(name, says):
    assert says in show(code=2, env={name: "soon"}).stderr


@pytest.mark.parametrize("text", ["90s", "10m", "2h", "7d", "1w", "0s"])
def test_a_duration_is_a_number_with_its_unit(text):
    assert settings(BALANCE_ANALYSIS_LAG=text)["lag"][0] == text


@pytest.mark.parametrize("text", ["90", "h", "-1h", "1.5h", "2 hours", "9" * 30 + "d", "\u0661h"])
def test_what_is_no_duration_is_refused(text):
    said = show(code=2, env={"BALANCE_ANALYSIS_LAG": text}).stderr
    assert "10m" in said or "too long" in said


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
    assert settings(BALANCE_ANALYSIS_ARCHIVE=text)["archive"][0] == shown


def test_a_name_may_be_left_out_where_there_is_only_one(file, tmp_path):
    (tmp_path / "x.toml").write_text("[export.only]\nlag = '2m'")
    assert settings("--config", tmp_path / "x.toml")["lag"][0] == "2m"
    assert "main, other: name one" in show("--config", file, code=2).stderr


def test_a_setting_of_the_file_that_is_wrong_is_a_json_line_where_the_file_asks_for_that(tmp_path):
    (tmp_path / "x.toml").write_text("[export.x]\nlag = 'soon'\nlog_format = 'json'")
    line = json.loads(run("export", "--config", tmp_path / "x.toml", code=2).stderr)
    assert (line["level"], line["exit_code"]) == ("error", 2)
    assert "[export.x] lag: 'soon' is not a duration" in line["message"]


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
    assert {"url", "archive", "since", "log_format"} < set(found) == set(settings())


def test_config_show_of_a_missing_name_or_file_is_usage(file, tmp_path):
    assert "no [export.x]" in show("x", "--config", file, code=2).stderr
    assert "none.toml" in show("x", "--config", tmp_path / "none.toml", code=2).stderr
    assert "--config FILE" in show("x", code=2).stderr
