"""The sandbox, judged by other people's code.

PyPI `wechatpayv3` and npm `alipay-sdk` talk to `PROGRAM sandbox` as they talk to the platforms: their requests must be
accepted, and they must accept its answers, callbacks and certificates. Bills are unpacked by Python's own gzip and zipfile.
"""

import gzip
import hashlib
import http.server
import io
import json
import queue
import subprocess
import sys
import tempfile
import threading
import tomllib
import urllib.parse
import urllib.request
import zipfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

from wechatpayv3 import WeChatPay, WeChatPayType
from wechatpayv3.core import Core

BEIJING = timezone(timedelta(hours=8))
WITHIN_SECONDS = 30


class Receiver(http.server.BaseHTTPRequestHandler):
    """A ledger that takes every callback."""

    arrived = queue.Queue()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Receiver.arrived.put((self.path, dict(self.headers.items()), body))
        answer = b"success" if "/alipay/" in self.path else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Sandbox:
    """`PROGRAM sandbox`, and its control API."""

    def __init__(self, program, folder, receiver_port, *options):
        command = [program, "sandbox", "--dir", str(folder), "--listen", "127.0.0.1:0", *options]
        command += ["--notify-base", f"http://127.0.0.1:{receiver_port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[-1]
        self.config = tomllib.loads(Path(folder, "paidonce.toml").read_text())

    def post(self, verb, **body):
        request = urllib.request.Request(f"{self.url}/sandbox/{verb}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=WITHIN_SECONDS) as answer:
            return json.loads(answer.read())

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=10)


def callback():
    return Receiver.arrived.get(timeout=WITHIN_SECONDS)


def wechat(sandbox, checks):
    account = sandbox.config["wxpay"][0]
    # The SDK's address of the platform stands in its source.
    Core._gate_way = property(lambda self: sandbox.url, lambda self, value: None)
    common = {
        "wechatpay_type": WeChatPayType.JSAPI, "mchid": account["mchid"], "appid": account["appids"][0],
        "private_key": Path(account["merchant_private_key_file"]).read_text(), "apiv3_key": account["apiv3_key"],
        "cert_serial_no": account["merchant_serial"], "timeout": WITHIN_SECONDS,
    }
    public = account["platform_keys"][0]
    sdks = {
        "public_key": WeChatPay(
            **common, public_key=Path(public["public_key_file"]).read_text(), public_key_id=public["public_key_id"]
        ),
        # Fetches and opens the certificate list by itself.
        "certificate": WeChatPay(**common),
    }
    for mode, sdk in sdks.items():
        sandbox.post("keys", mode=mode)
        order_no = f"INTEROP-{mode}"
        say = lambda what: f"sandbox wechat, {mode}: {what}"
        checks.equal(say("an unknown order"), sdk.query(out_trade_no=order_no)[0], 404)
        paid = sandbox.post("pay", channel="wxpay", order_no=order_no, amount_minor=8888)
        _, headers, body = callback()
        told = sdk.callback(headers, body)
        checks.equal(say("the callback is accepted"), told and told["resource"]["transaction_id"], paid["channel_trade_no"])
        status, text = sdk.query(out_trade_no=order_no)
        checks.equal(say("a paid order"), (status, json.loads(text)["trade_state"]), (200, "SUCCESS"))
        amount = {"refund": 8888, "total": 8888, "currency": "CNY"}
        status, text = sdk.refund(out_refund_no=f"{order_no}-R", out_trade_no=order_no, amount=amount)
        checks.equal(say("a refund"), (status, json.loads(text)["status"]), (200, "PROCESSING"))
        _, headers, body = callback()
        told = sdk.callback(headers, body)
        checks.equal(say("the refund's callback"), told and told["resource"]["refund_status"], "SUCCESS")
        status, text = sdk.query_refund(out_refund_no=f"{order_no}-R")
        checks.equal(say("its query"), (status, json.loads(text)["status"]), (200, "SUCCESS"))
        sandbox.post("open", channel="wxpay", order_no=f"{order_no}-C", amount_minor=1)
        checks.equal(say("a close, a signed nothing"), sdk.close(out_trade_no=f"{order_no}-C")[0], 204)
        sandbox.post("fail-next", api="query", kind="bad_signature")
        try:
            checks.equal(say("a bad signature"), sdk.query(out_trade_no=order_no), "refused by the SDK")
        except Exception as error:
            checks.equal(say("a bad signature"), str(error), "failed to verify the signature")
    sdk, day = sdks["public_key"], (datetime.now(BEIJING) - timedelta(days=2)).strftime("%Y-%m-%d")
    sandbox.post("keys", mode="public_key")
    sandbox.post("pay", channel="wxpay", order_no="INTEROP-BILL", amount_minor=100, paid_seconds_ago=2 * 86400, callback="lost")
    status, text = sdk.trade_bill(bill_date=day, tar_type="GZIP")
    bill = json.loads(text)
    checks.equal("sandbox wechat: a bill", status, 200)
    plain = gzip.decompress(sdk.download_bill(bill["download_url"])[1])
    checks.equal("sandbox wechat: its hash", hashlib.sha1(plain).hexdigest(), bill["hash_value"])
    checks.equal("sandbox wechat: its order", b"`INTEROP-BILL," in plain, True)


def alipay(sandbox, checks, node):
    account = sandbox.config["alipay"][0]
    app = account["apps"][0]
    keys = {
        "appId": app["app_id"], "gateway": account["api_url"],
        "privateKey": bare(Path(app["app_private_key_file"]).read_text()),
        "publicKey": bare(Path(app["alipay_public_key_file"]).read_text()),
    }

    def ask(method, **biz):
        return node({"do": "exec", "method": method, "biz": biz, **keys})

    def told():
        fields = dict(urllib.parse.parse_qsl(callback()[2].decode(), keep_blank_values=True, strict_parsing=True))
        checks.equal("sandbox alipay: a notice is accepted", node({"do": "check", "fields": fields, **keys})["accepted"], True)
        return fields

    order_no = "INTEROP-ALIPAY"
    checks.equal("sandbox alipay: an unknown trade", ask("alipay.trade.query", out_trade_no=order_no)["subCode"], "ACQ.TRADE_NOT_EXIST")
    sandbox.post("pay", channel="alipay", order_no=order_no, amount_minor=8888)
    checks.equal("sandbox alipay: its notice", told()["trade_status"], "TRADE_SUCCESS")
    answer = ask("alipay.trade.query", out_trade_no=order_no)
    checks.equal("sandbox alipay: a paid trade", (answer["code"], answer["tradeStatus"]), ("10000", "TRADE_SUCCESS"))
    answer = ask("alipay.trade.refund", out_trade_no=order_no, out_request_no="R1", refund_amount="8.88")
    checks.equal("sandbox alipay: a refund", (answer["fundChange"], answer["refundFee"]), ("Y", "8.88"))
    checks.equal("sandbox alipay: its notice", told()["refund_fee"], "8.88")
    sandbox.post("open", channel="alipay", order_no=f"{order_no}-C", amount_minor=1)
    checks.equal("sandbox alipay: a close", ask("alipay.trade.close", out_trade_no=f"{order_no}-C")["code"], "10000")
    checks.equal("sandbox alipay: its notice", told()["trade_status"], "TRADE_CLOSED")
    sandbox.post("fail-next", api="query", kind="bad_signature")
    checks.equal("sandbox alipay: a bad signature", "error" in ask("alipay.trade.query", out_trade_no=order_no), True)
    day = (datetime.now(BEIJING) - timedelta(days=2)).strftime("%Y-%m-%d")
    sandbox.post("pay", channel="alipay", order_no="INTEROP-BILL", amount_minor=100, paid_seconds_ago=2 * 86400, callback="lost")
    answer = ask("alipay.data.dataservice.bill.downloadurl.query", bill_type="trade", bill_date=day)
    with urllib.request.urlopen(answer["billDownloadUrl"], timeout=WITHIN_SECONDS) as file:
        archive = zipfile.ZipFile(io.BytesIO(file.read()))
    checks.equal("sandbox alipay: a bill is whole", archive.testzip(), None)
    texts = [archive.read(name).decode("gb18030") for name in archive.namelist()]
    checks.equal("sandbox alipay: its order", any("INTEROP-BILL\t," in text for text in texts), True)


def alipay_by_certificates(sandbox, checks, node):
    account = sandbox.config["alipay"][0]
    app = account["apps"][0]
    read = lambda name: Path(app[name]).read_text()
    keys = {
        "appId": app["app_id"], "gateway": account["api_url"], "privateKey": bare(read("app_private_key_file")),
        "certificates": {
            "app": read("app_cert_file"), "root": read("alipay_root_cert_file"), "alipay": read("alipay_cert_file"),
        },
    }

    def ask(method, **biz):
        return node({"do": "exec", "method": method, "biz": biz, **keys})

    order_no = "INTEROP-CERT"
    sandbox.post("pay", channel="alipay", order_no=order_no, amount_minor=8888)
    fields = dict(urllib.parse.parse_qsl(callback()[2].decode(), keep_blank_values=True, strict_parsing=True))
    checks.equal("sandbox alipay, certificates: a notice", node({"do": "check", "fields": fields, **keys})["accepted"], True)
    answer = ask("alipay.trade.query", out_trade_no=order_no)
    found = (answer.get("code"), answer.get("tradeStatus"), answer.get("error"))
    checks.equal("sandbox alipay, certificates: a paid trade", found, ("10000", "TRADE_SUCCESS", None))
    keys["certificates"]["app"] = keys["certificates"]["alipay"]
    answer = ask("alipay.trade.query", out_trade_no=order_no)
    checks.equal("sandbox alipay, certificates: another app's", answer.get("subCode"), "isv.invalid-app-cert-sn")


def bare(pem):
    return "".join(line for line in pem.splitlines() if not line.startswith("-----"))


def run(program, checks, node):
    """Plays both platforms and lets both SDKs judge them."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    plays = [
        ([], lambda sandbox: (wechat(sandbox, checks), alipay(sandbox, checks, node))),
        (["--alipay-keys", "certificate"], lambda sandbox: alipay_by_certificates(sandbox, checks, node)),
    ]
    try:
        for options, play in plays:
            with tempfile.TemporaryDirectory(prefix="paidonce-interop-sandbox-") as folder:
                sandbox = Sandbox(program, Path(folder), server.server_address[1], *options)
                try:
                    play(sandbox)
                finally:
                    sandbox.stop()
    finally:
        server.shutdown()


if __name__ == "__main__":
    sys.exit("run by drive.py")
