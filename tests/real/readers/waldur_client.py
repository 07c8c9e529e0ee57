"""Waldur's own client: payloads as its classes write them again, and the usages of a month. In: url, month, payloads;
out: payloads, usages by resource and component, and those of users."""

import datetime as dt
import json
import sys
from importlib import import_module

api = "waldur_api_client.api"
usages = import_module(f"{api}.marketplace_component_usages.marketplace_component_usages_list")
user_usages = import_module(f"{api}.marketplace_component_user_usages.marketplace_component_user_usages_list")
models = "waldur_api_client.models"
create = import_module(f"{models}.component_usage_create_request").ComponentUsageCreateRequest
bulk = import_module(f"{models}.component_user_usage_bulk_create_request").ComponentUserUsageBulkCreateRequest
given = json.load(sys.stdin)
client = import_module("waldur_api_client").AuthenticatedClient(base_url=given["url"], token="provider", prefix="Token")
month = dt.date.fromisoformat(f"{given['month']}-01")


def again(body):
    read = (create if "resource" in body else bulk).from_dict(body)
    assert not read.additional_properties, read.additional_properties
    return read.to_dict()


json.dump(
    {
        "payloads": [again(body) for body in given["payloads"]],
        "usages": [
            [str(each.resource_uuid), each.type_, str(each.usage)]
            for each in usages.sync_all(client=client, billing_period=month)
        ],
        "of_users": [
            [str(each.resource_uuid), each.component_type, each.username, str(each.usage)]
            for each in user_usages.sync_all(client=client, component_usage_billing_period=month)
        ],
    },
    sys.stdout,
)
