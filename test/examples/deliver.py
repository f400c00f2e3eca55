# The reader's own function, which the examples call: fails for "nobody", tells of all others.
def deliver(payload):
    if payload["to"] == "nobody":
        raise RuntimeError("mailbox full")
    print("delivered to " + payload["to"], flush=True)


