from __future__ import annotations

import pytest
import requests

from balance_analysis.service.app import create_app
from balance_analysis.service.embedded import serve
from tests.service.rows import block_of, write_rows


class Node:
    """The service over a file that a test may replace."""

    def __init__(self, url, path, session):
        self.url, self.path, self.session = url, path, session

    def hold(self, rows):
        part = self.path.with_suffix(".part")
        write_rows(part, rows)
        part.replace(self.path)

    def get(self, parameters=(), path="/api/v2/balance/changes"):
        return self.session.get(self.url + path, params=parameters, timeout=10)

    def page(self, parameters=()):
        response = self.get(parameters)
        assert response.status_code == 200, response.text
        assert set(response.json()) == {"balances"}
        return response.json()["balances"]

    def cursors(self, rows):
        """The cursor of every row that the node holds."""
        by_node = {
            tuple(sorted(edge["node"].items())): edge["cursor"]
            for edge in self.page({"pagination.first": 5000})["edges"]
        }
        return {row: by_node[tuple(sorted(row.node.items()))] for row in rows}

    def refusal(self, query):
        """Status, code and useful text of a request that is refused."""
        response = self.session.get(f"{self.url}/api/v2/balance/changes?{query}", timeout=10)
        body = response.json()
        return response.status_code, body["code"], body["details"][0]["inner"]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "changes.parquet"
    write_rows(path, [])
    with serve(create_app(path)) as url, requests.Session() as session:
        yield Node(url, path, session)


@pytest.fixture
def block(node):
    """A node that holds one block of 30 rows."""
    node.hold(block_of(30))
    return node
