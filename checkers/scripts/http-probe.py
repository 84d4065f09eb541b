"""Makes one HTTP request without following redirections and prints what came of it as JSON."""
import http.client
import json
import ssl
import sys
import time

request = json.loads(sys.argv[1])
timeout = request["timeoutMs"] / 1000
name = request["host"] or request["address"]
answer = {
    "url": "%s://%s:%d%s" % (request["scheme"], name, request["port"], request["path"]),
    "status": None,
    "error": None,
    "headers": {},
    "body": "",
    "durationMs": 0,
}


def connection():
    if request["scheme"] == "http":
        return http.client.HTTPConnection(request["address"], request["port"], timeout=timeout)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(request["address"], request["port"], timeout=timeout, context=context)


begun = time.monotonic()
try:
    link = connection()
    link.request("GET", request["path"], headers={"Host": name, "User-Agent": "probe", "Connection": "close"})
    response = link.getresponse()
    body = response.read(request["limit"])
    answer["status"] = response.status
    answer["headers"] = {key.lower(): value for key, value in response.getheaders()[:50]}
    answer["body"] = body.decode("utf-8", "replace")
except (OSError, http.client.HTTPException) as error:
    answer["status"] = None
    answer["error"] = str(error) or type(error).__name__
answer["durationMs"] = round((time.monotonic() - begun) * 1000, 1)
print(json.dumps(answer))
