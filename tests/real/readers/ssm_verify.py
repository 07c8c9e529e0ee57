"""SSM's receiver: verifies, or decrypts and verifies. In: folder of authorities, messages, receiver's certificate and
key; out: payload and sender of each, or the error."""

import json
import sys
from importlib import import_module

crypto = import_module("ssm.crypto")
given = json.load(sys.stdin)


def read(message):
    try:
        if "pkcs7-mime" in message.split("\n\n", 1)[0]:
            message = crypto.decrypt(message, given["certificate"], given["key"])
        payload, sender = crypto.verify(message, given["authorities"], False)
    except Exception as error:  # whatever refuses the message
        return {"error": f"{type(error).__name__}: {error}"}
    return {"payload": payload, "sender": str(sender)}


json.dump([read(message) for message in given["messages"]], sys.stdout)
