"""The forms of what the service answers, for its description."""

from __future__ import annotations

from typing import Any, Final

from balance_analysis.schema import ACCOUNT_TYPES
from balance_analysis.service.parameters import MAX_PAGE_SIZE

Json = dict[str, Any]

CURSOR: Final = "cursor"
"""The format of what `startCursor`, `endCursor` and `cursor` hold."""

NANOSECONDS: Final = "Nanoseconds since 1970-01-01 UTC, as text: many languages' numbers round it."


def schemas() -> Json:
    """Return every form by its name, as JSON Schema."""
    return {
        "AccountType": {"type": "string", "enum": list(ACCOUNT_TYPES)},
        "AggregatedBalance": _object(
            accountType=_text("One of AccountType, or one of a later release."),
            assetId=_text("The asset."),
            balance={
                **_text("In the asset's smallest unit, up to 38 digits."),
                "pattern": "^-?[0-9]{1,38}$",
            },
            marketId=_text("The market; empty where the account has none."),
            partyId=_text("The owner; `network` where the account has none."),
            timestamp={**_text(NANOSECONDS), "format": "int64", "pattern": "^-?[0-9]{1,19}$"},
        ),
        "Edge": _object(node=_reference("AggregatedBalance"), cursor=_cursor("Of this row.")),
        "PageInfo": _object(
            startCursor=_cursor("Of the first row; empty on an empty page."),
            endCursor=_cursor("Of the last row; empty on an empty page."),
            hasNextPage={"type": "boolean"},
            hasPreviousPage={"type": "boolean"},
        ),
        "Balances": _object(
            edges={"type": "array", "items": _reference("Edge"), "maxItems": MAX_PAGE_SIZE},
            pageInfo=_reference("PageInfo"),
        ),
        "ListBalanceChangesResponse": _object(balances=_reference("Balances")),
        "NetworkLimits": _object(
            canProposeAsset={"type": "boolean"},
            canProposeMarket={"type": "boolean"},
            genesisLoaded={"type": "boolean"},
            proposeAssetEnabled={"type": "boolean"},
            proposeAssetEnabledFrom=_since(),
            proposeMarketEnabled={"type": "boolean"},
            proposeMarketEnabledFrom=_since(),
        ),
        "GetNetworkLimitsResponse": _object(limits=_reference("NetworkLimits")),
        "Error": _object(
            code={"type": "integer", "format": "int32", "description": "One of gRPC's codes."},
            message=_text("What kind of error it is."),
            details={"type": "array", "items": _reference("ErrorDetail"), "minItems": 1},
        ),
        "ErrorDetail": _object(
            **{"@type": {"type": "string"}},
            code={"type": "integer", "format": "int32"},
            message={"type": "string"},
            inner=_text("What is wrong, and what to do."),
        ),
        "Health": _object(
            status={"type": "string", "const": "ok"},
            coverage_start=_moment("Where what is complete begins."),
            coverage_end=_moment("Where what is complete ends."),
            age_seconds={
                "type": ["number", "null"],
                "description": "How long ago what is complete ends.",
            },
            gaps={"type": "integer", "description": "Between the covered intervals."},
            rows={"type": "integer", "description": "That the archive holds."},
        ),
    }


def _object(**properties: Json) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties}


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _cursor(description: str) -> Json:
    return {**_text(description), "format": CURSOR}


def _since() -> Json:
    return {
        **_text(f"{NANOSECONDS} `0` where not set."),
        "format": "int64",
        "pattern": "^-?[0-9]{1,19}$",
    }


def _moment(description: str) -> Json:
    return {"type": ["string", "null"], "format": "date-time", "description": description}


def _reference(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}
