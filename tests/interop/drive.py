"""Signs and seals with other people's code, sends to a running ledger, and compares verdicts.

WeChat Pay: sealed by PyPI `cryptography`, signed and independently checked by PyPI `wechatpayv3`.
Alipay: signed and independently checked by npm `alipay-sdk` (alipay.js beside this file).
The sandbox: judged by the same two (sandbox.py beside this file).
The books: judged by hledger and beancount (books.py beside this file).
All keys are test keys, made for one run.
"""

import base64
import datetime
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import books
import sandbox
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import NameOID
from wechatpayv3 import WeChatPay, WeChatPayType
from wechatpayv3.utils import rsa_sign

MCHID, APPID = "1900000001", "wx0000000000000001"
SELLER_ID, APP_ID = "2088000000000001", "2021000000000001"
KEY_ID = "PUB_KEY_ID_0110000000012025010800000000000001"
TOKEN = secrets.token_hex(32)
BEIJING = datetime.timezone(datetime.timedelta(hours=8))


def private_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def public_pem(key):
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()


def bare(pem):
    return "".join(line for line in pem.splitlines() if not line.startswith("-----"))


def certificate(key):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test platform certificate")])
    now = datetime.datetime.now(datetime.timezone.utc)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1825))
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM).decode(), format(built.serial_number, "X")


class Checks:
    def __init__(self):
        self.passed, self.failed = 0, 0

    def equal(self, what, found, expected):
        if found == expected:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}: {found!r} instead of {expected!r}")


class Ledger:
    """A paidonce process on a temporary SQLite ledger."""

    def __init__(self, program, folder, keys):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = folder / "paidonce.toml"
        config.write_text(self.config(folder, keys))
        self.log = open(folder / "serve.log", "wb")
        env = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        self.process = subprocess.Popen(
            [program, "serve", "--config", str(config)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=env, cwd=folder,
        )
        self.wait_until_ready()

    def config(self, folder, keys):
        (folder / "wxpay_public.pem").write_text(public_pem(keys["wxpay"]))
        (folder / "wxpay_cert.pem").write_text(keys["wxpay_cert"])
        # As the console shows it: bare base64.
        (folder / "alipay_public.txt").write_text(bare(public_pem(keys["alipay"])))
        return f"""
[server]
listen = "127.0.0.1:{self.port}"
[database]
url = "sqlite"
data_dir = "data"
[[wxpay]]
mchid = "{MCHID}"
appids = ["{APPID}"]
apiv3_key = "{keys["apiv3"]}"
[[wxpay.platform_keys]]
public_key_id = "{KEY_ID}"
public_key_file = "wxpay_public.pem"
[[wxpay.platform_keys]]
certificate_file = "wxpay_cert.pem"
[[alipay]]
seller_id = "{SELLER_ID}"
[[alipay.apps]]
app_id = "{APP_ID}"
alipay_public_key_file = "alipay_public.txt"
[[tokens]]
name = "interop"
scopes = ["service", "operator"]
secret = "{TOKEN}"
"""

    def request(self, method, path, body=None, headers=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=body, method=method, headers=headers or {}
        )
        # No proxy of the environment for loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def wait_until_ready(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        self.log.flush()
        sys.exit(f"the ledger did not start:\n{Path(self.log.name).read_text()}")

    def api(self, method, path, document=None):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        body = json.dumps(document).encode() if document is not None else None
        status, answer = self.request(method, path, body, headers)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {answer.decode()}")
        return json.loads(answer)

    def open_order(self, order_no, account):
        terms = {"order_no": order_no, "amount_minor": 8888, "currency": "CNY", "accounts": [account]}
        self.api("POST", "/v1/orders", terms)

    def order(self, order_no):
        order = self.api("GET", f"/v1/orders/{order_no}")
        events = self.api("GET", f"/v1/orders/{order_no}/events")["events"]
        return order["status"], [event["event_type"] for event in events]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            sys.exit("the ledger did not stop within 20 s of SIGTERM")


class Wxpay:
    """WeChat Pay's side: AES-256-GCM by `cryptography`, RSA by `wechatpayv3`."""

    def __init__(self, ledger, checks, keys):
        self.ledger, self.checks, self.keys = ledger, checks, keys
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "cert.pem").write_text(keys["wxpay_cert"])
            common = dict(
                wechatpay_type=WeChatPayType.JSAPI, mchid=MCHID, private_key=private_pem(keys["merchant"]),
                cert_serial_no="00", apiv3_key=keys["apiv3"], appid=APPID, notify_url="https://example.com/",
            )
            self.by_key = WeChatPay(**common, public_key=public_pem(keys["wxpay"]), public_key_id=KEY_ID)
            self.by_certificate = WeChatPay(**common, cert_dir=f"{folder}/")

    def payment(self, order_no):
        return "transaction", "TRANSACTION.SUCCESS", {
            "appid": APPID, "mchid": MCHID, "out_trade_no": order_no, "transaction_id": f"4200{order_no}",
            "trade_type": "JSAPI", "trade_state": "SUCCESS", "trade_state_desc": "支付成功", "bank_type": "OTHERS",
            "attach": "附加 \"数据\" \\ /", "success_time": datetime.datetime.now(BEIJING).isoformat(timespec="seconds"),
            "payer": {"openid": "test-payer"},
            "amount": {"total": 8888, "payer_total": 8888, "currency": "CNY", "payer_currency": "CNY"},
        }

    def refund(self, order_no):
        return "refund", "REFUND.SUCCESS", {
            "mchid": MCHID, "out_trade_no": order_no, "transaction_id": f"4200{order_no}",
            "out_refund_no": f"{order_no}-R", "refund_id": f"5000{order_no}", "refund_status": "SUCCESS",
            "success_time": datetime.datetime.now(BEIJING).isoformat(timespec="seconds"),
            "user_received_account": "支付用户零钱",
            "amount": {"total": 8888, "refund": 8888, "payer_total": 8888, "payer_refund": 8888},
        }

    def message(self, content, *, serial=KEY_ID, key=None, apiv3=None, aad=None, age=0, pretty=False):
        original_type, event_type, plaintext = content
        nonce = secrets.token_hex(6)
        aad = original_type if aad is None else aad
        sealed = AESGCM((apiv3 or self.keys["apiv3"]).encode()).encrypt(
            nonce.encode(), json.dumps(plaintext, ensure_ascii=False).encode(), aad.encode()
        )
        envelope = {
            "id": secrets.token_hex(16), "create_time": plaintext["success_time"],
            "resource_type": "encrypt-resource", "event_type": event_type, "summary": "支付成功",
            "resource": {
                "original_type": original_type, "algorithm": "AEAD_AES_256_GCM",
                "ciphertext": base64.b64encode(sealed).decode(), "associated_data": aad, "nonce": nonce,
            },
        }
        body = json.dumps(envelope, ensure_ascii=False, indent=2 if pretty else None)
        timestamp, header_nonce = str(int(time.time()) - age), secrets.token_hex(16)
        signature = rsa_sign(key or self.keys["wxpay"], f"{timestamp}\n{header_nonce}\n{body}\n")
        headers = {
            "Content-Type": "application/json", "Wechatpay-Timestamp": timestamp, "Wechatpay-Nonce": header_nonce,
            "Wechatpay-Signature": signature, "Wechatpay-Signature-Type": "WECHATPAY2-SHA256-RSA2048",
            "Wechatpay-Serial": serial,
        }
        return headers, body.encode()

    def vendor_accepts(self, headers, body):
        """What `wechatpayv3` would have made of it."""
        vendor = self.by_key if headers["Wechatpay-Serial"] == KEY_ID else self.by_certificate
        try:
            return bool(vendor.callback(headers=headers, body=body))
        except Exception:  # It raises many things on what it does not like.
            return False

    def send(self, what, message, status, vendor):
        headers, body = message
        found, _ = self.ledger.request("POST", f"/callbacks/wxpay/{MCHID}", body, headers)
        self.checks.equal(f"wxpay: {what}: our status", found, status)
        if vendor is not None:
            self.checks.equal(f"wxpay: {what}: accepted by wechatpayv3", self.vendor_accepts(headers, body), vendor)

    def books(self, what, order_no, status, events):
        self.checks.equal(f"wxpay: {what}: the order", self.ledger.order(order_no), (status, events))

    def run(self):
        serial = self.keys["wxpay_cert_serial"]
        opened, paid = ["OrderOpened"], ["OrderOpened", "PaymentConfirmed"]
        for number, (what, options) in enumerate(
            [
                ("signed under a public key id", {}),
                ("signed under a certificate serial", {"serial": serial, "key": self.keys["wxpay_of_cert"]}),
                ("no associated data", {"aad": ""}),
                ("a body with line ends and spaces", {"pretty": True}),
                ("four minutes old", {"age": 240}),
            ]
        ):
            order_no = f"IWXOK{number}"
            self.ledger.open_order(order_no, f"wxpay:{MCHID}")
            content = self.payment(order_no)
            for _ in range(3):
                self.send(what, self.message(content, **options), 204, True)
            self.books(what, order_no, "PAID", paid)
        lower = {"serial": serial.lower(), "key": self.keys["wxpay_of_cert"]}
        self.send("a certificate serial in lower case", self.message(self.payment("IWXOK0"), **lower), 204, None)
        self.send("a refund", self.message(self.refund("IWXOK0")), 204, True)
        self.books("a refund", "IWXOK0", "REFUNDED", [*paid, "RefundConfirmed"])

        bad = "IWXBAD"
        self.ledger.open_order(bad, f"wxpay:{MCHID}")
        content = self.payment(bad)
        headers, body = self.message(content)
        self.send("a byte changed after signing", (headers, body.replace(b"TRANSACTION", b"TRANSACTIOM")), 401, False)
        headers, body = self.message(content)
        self.send("another nonce in the header", ({**headers, "Wechatpay-Nonce": "0" * 32}, body), 401, False)
        self.send("signed by somebody else", self.message(content, key=self.keys["stranger"]), 401, False)
        # These two the vendor's code does not refuse; a ledger must.
        self.send("five minutes old", self.message(content, age=301), 401, None)
        self.send("from the future", self.message(content, age=-301), 401, None)
        headers, body = self.message(content)
        probe = {**headers, "Wechatpay-Signature": "WECHATPAY/SIGNTEST/" + headers["Wechatpay-Signature"]}
        self.send("a probe", (probe, body), 401, False)
        self.send("an unknown serial", self.message(content, serial="PUB_KEY_ID_404"), 401, None)
        self.send("sealed with another APIv3 key", self.message(content, apiv3="x" * 32), 500, False)
        self.books("nothing of that", bad, "PENDING", opened)


class Alipay:
    """Alipay's side, by npm `alipay-sdk`."""

    def __init__(self, ledger, checks, keys, work):
        self.ledger, self.checks, self.keys = ledger, checks, keys
        script = Path(__file__).with_name("alipay.js")
        # The SDK dates its requests by the host's local time; the platform reads Beijing time.
        self.node = subprocess.Popen(
            ["node", str(script), str(work / "node")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TZ": "Asia/Shanghai"},
        )

    def ask(self, request):
        self.node.stdin.write(json.dumps(request) + "\n")
        self.node.stdin.flush()
        answer = self.node.stdout.readline()
        if not answer:
            sys.exit("alipay.js ended")
        return json.loads(answer)

    def fields(self, order_no, **changes):
        now = datetime.datetime.now(BEIJING).strftime("%Y-%m-%d %H:%M:%S")
        fields = {
            "app_id": APP_ID, "auth_app_id": APP_ID, "buyer_id": "2088000000000099", "buyer_pay_amount": "88.88",
            "charset": "utf-8", "fund_bill_list": '[{"amount":"88.88","fundChannel":"ALIPAYACCOUNT"}]',
            "gmt_create": now, "gmt_payment": now, "invoice_amount": "88.88", "notify_id": secrets.token_hex(17),
            "notify_time": now, "notify_type": "trade_status_sync", "out_trade_no": order_no, "point_amount": "0.00",
            "receipt_amount": "88.88", "seller_id": SELLER_ID, "subject": "一件商品", "total_amount": "88.88",
            "trade_no": f"2025{order_no}", "trade_status": "TRADE_SUCCESS", "version": "1.0", **changes,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def signed(self, fields, key="alipay"):
        sign = self.ask({"do": "sign", "fields": fields, "privateKey": private_pem(self.keys[key])})["sign"]
        return {**fields, "sign_type": "RSA2", "sign": sign}

    def sdk_accepts(self, fields):
        request = {
            "do": "check", "fields": fields, "publicKey": bare(public_pem(self.keys["alipay"])),
            "privateKey": bare(private_pem(self.keys["merchant"])),
        }
        return self.ask(request)["accepted"]

    def send(self, what, fields, answer, sdk):
        form = urllib.parse.urlencode(fields).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        status, body = self.ledger.request("POST", f"/callbacks/alipay/{SELLER_ID}", form, headers)
        self.checks.equal(f"alipay: {what}: our answer", (status, body), answer)
        self.checks.equal(f"alipay: {what}: accepted by alipay-sdk", self.sdk_accepts(fields), sdk)

    def books(self, what, order_no, status, events):
        self.checks.equal(f"alipay: {what}: the order", self.ledger.order(order_no), (status, events))

    def run(self):
        success, refused = (200, b"success"), (401, b"fail")
        opened, paid = ["OrderOpened"], ["OrderOpened", "PaymentConfirmed"]
        for number, (what, changes) in enumerate(
            [
                ("a payment", {}),
                ("signs in the subject", {"subject": "a+b &c=d %41 \"e\" 'f' <g> ~h"}),
                ("passback parameters", {"passback_params": "merchantBizType%3d3C%26merchantBizNo%3d2016"}),
                ("a field nobody knows", {"new_field": "new value"}),
                ("a finished payment", {"trade_status": "TRADE_FINISHED"}),
            ]
        ):
            order_no = f"IALOK{number}"
            self.ledger.open_order(order_no, f"alipay:{SELLER_ID}")
            fields = self.fields(order_no, **changes)
            for _ in range(3):
                self.send(what, self.signed(fields), success, True)
            self.books(what, order_no, "PAID", paid)
        now = datetime.datetime.now(BEIJING).strftime("%Y-%m-%d %H:%M:%S")
        refund = self.fields(
            "IALOK0", trade_status="TRADE_CLOSED", refund_fee="88.88", gmt_refund=f"{now}.143", gmt_close=now,
            out_biz_no="IALOK0-R",
        )
        self.send("a full refund", self.signed(refund), success, True)
        self.books("a full refund", "IALOK0", "REFUNDED", [*paid, "RefundConfirmed"])

        bad = "IALBAD"
        self.ledger.open_order(bad, f"alipay:{SELLER_ID}")
        good = self.signed(self.fields(bad))
        self.send("an amount changed after signing", {**good, "total_amount": "0.01"}, refused, False)
        self.send("a field added after signing", {**good, "added": "1"}, refused, False)
        self.send("a field removed after signing", {k: v for k, v in good.items() if k != "subject"}, refused, False)
        self.send("signed by somebody else", self.signed(self.fields(bad), key="stranger"), refused, False)
        self.send("without a signature", {k: v for k, v in good.items() if k != "sign"}, refused, False)
        # Here we are stricter on purpose: the SDK lets the message choose SHA-1, a ledger pins RSA2.
        fields = self.fields(bad)
        text = "&".join(f"{name}={fields[name]}" for name in sorted(fields))
        sha1 = self.keys["alipay"].sign(text.encode(), padding.PKCS1v15(), hashes.SHA1())
        weak = {**fields, "sign_type": "RSA", "sign": base64.b64encode(sha1).decode()}
        self.send("signed with SHA-1", weak, refused, True)
        self.books("nothing of that", bad, "PENDING", opened)

    def stop(self):
        self.node.stdin.close()
        self.node.wait(timeout=10)


def main():
    program, work = sys.argv[1], Path(sys.argv[2])
    names = ("wxpay", "wxpay_of_cert", "alipay", "merchant", "stranger")
    keys = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in names}
    keys["wxpay_cert"], keys["wxpay_cert_serial"] = certificate(keys["wxpay_of_cert"])
    keys["apiv3"] = secrets.token_hex(16)
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="paidonce-interop-") as folder:
        ledger = Ledger(program, Path(folder), keys)
        alipay = Alipay(ledger, checks, keys, work)
        try:
            Wxpay(ledger, checks, keys).run()
            alipay.run()
            books.run(program, Path(folder), checks)
            sandbox.run(program, checks, alipay.ask)
        finally:
            alipay.stop()
            ledger.stop()
            ledger.log.close()
        if checks.failed:
            print(Path(folder, "serve.log").read_text()[-8000:])
    print(f"interop: {checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
