//! The tables of codes, row by row: what is a refusal, what is final, and that everything else is an unknown outcome.

use paidonce_channel::api::ApiCall;
use serde_json::json;

use crate::api_signer::*;

/// Answers for payment, refund state, refund, close, share.
type Row = (&'static [&'static str], [&'static str; 5]);

const NOT_FOUND: [&str; 5] = ["final NotFound", "final NotFound", "refused Person", "final NotFound", "final NotFound"];
const WAIT: [&str; 5] = ["refused Wait"; 5];
const PERSON: [&str; 5] = ["refused Person"; 5];
const TROUBLE: [&str; 5] = ["unknown server_error"; 5];
const UNKNOWN: [&str; 5] = ["unknown unknown_code"; 5];
const NOT_UNPAID: [&str; 5] =
    ["unknown unknown_code", "unknown unknown_code", "refused Person", "final MaybePaid", "unknown unknown_code"];

const fn at(index: usize, word: &'static str) -> [&'static str; 5] {
    let mut row = UNKNOWN;
    row[index] = word;
    row
}

const WXPAY_ROWS: [Row; 9] = [
    (
        &[
            "ORDER_NOT_EXIST",
            "ORDER_NOT_EXISTS",
            "ORDERNOTEXIST",
            "268512771",
            "RESOURCE_NOT_EXISTS",
            "RESOURCE_NOT_EXIST",
            "REFUND_NOT_EXISTS",
            "REFUNDNOTEXIST",
        ],
        NOT_FOUND,
    ),
    (&["ORDER_PAID", "ORDERPAID", "268449538", "268498689", "268449641"], NOT_UNPAID),
    (&["ORDER_CLOSED", "ORDERCLOSED", "268447914"], at(3, "final Closed")),
    (&["NOT_ENOUGH", "NOTENOUGH"], at(2, "final BalanceShort")),
    (
        &[
            "FREQUENCY_LIMITED",
            "FREQUENCY_LIMIT",
            "FREQUENCY_LIMIT_EXCEED",
            "RATELIMIT_EXCEEDED",
            "RATELIMIT_EXCEED",
            "268447840",
        ],
        WAIT,
    ),
    (
        &[
            "PARAM_ERROR",
            "INVALID_REQUEST",
            "MCH_NOT_EXISTS",
            "SIGN_ERROR",
            "268443699",
            "NO_AUTH",
            "NOAUTH",
            "RULE_LIMIT",
            "APPID_MCHID_NOT_MATCH",
            "268447843",
            "268498688",
            "USER_ACCOUNT_ABNORMAL",
        ],
        PERSON,
    ),
    (&["SYSTEM_ERROR", "SYSTEMERROR", "BANK_ERROR", "BANKERROR"], TROUBLE),
    (&["TRADE_ERROR", "SOMETHING_NEW", "order_not_exist", "ORDER_NOT_EXIST ", "0", "200"], UNKNOWN),
    (&[""], ["unknown unreadable"; 5]),
];

#[test]
fn gotcha_34_wxpay_codes_in_all_spellings() {
    let api = wxpay_api(&wxpay_api_config());
    let calls: [ApiCall; 5] = [
        ask_payment(),
        ask_refund_state(wxpay_payment_ref()),
        ask_refund(wxpay_payment_ref()),
        ask_close(),
        ask_share(wxpay_payment_ref()),
    ];
    for (codes, expected) in WXPAY_ROWS {
        for code in codes {
            let error = json!({ "code": code, "message": "words" });
            for status in [400, 401, 403, 404] {
                let response = Response::wxpay(status, &error);
                let words = calls.each_ref().map(|call| word(&response.read(api.as_ref(), call)));
                assert_eq!(words, expected, "{code} {status}");
            }
            // The same words without a signature, or under a 5xx, are worth nothing.
            for call in &calls {
                let unsigned = Response::unsigned(404, &error.to_string()).read(api.as_ref(), call);
                assert_eq!(word(&unsigned), "unknown unsigned", "{code}");
                let failed = Response::wxpay(500, &error).read(api.as_ref(), call);
                assert_eq!(word(&failed), "unknown server_error", "{code}");
            }
        }
    }
    for code in ["SOMETHING_NEW", "FREQUENCY_LIMITED"] {
        let response = Response::wxpay(429, &json!({ "code": code, "message": "" }));
        assert_eq!(word(&response.read(api.as_ref(), &calls[0])), "refused Wait");
    }
    let certificates = ask(paidonce_channel::api::Ask::Certificates);
    let none = Response::wxpay(404, &json!({ "code": "RESOURCE_NOT_EXISTS", "message": "无可用的平台证书" }));
    assert_eq!(word(&none.read(api.as_ref(), &certificates)), "refused Person");
}

const ALIPAY_ROWS: [Row; 9] = [
    (&["40004 ACQ.TRADE_NOT_EXIST", "40004 TRADE_NOT_EXIST"], NOT_FOUND),
    (
        &["40004 ACQ.TRADE_STATUS_ERROR", "40004 ACQ.REASON_TRADE_STATUS_INVALID", "40004 ACQ.REASON_ILLEGAL_STATUS"],
        NOT_UNPAID,
    ),
    (&["40004 ACQ.SELLER_BALANCE_NOT_ENOUGH"], at(2, "final BalanceShort")),
    (&["40004 ACQ.TRADE_HAS_FINISHED"], at(2, "final Failed")),
    (
        &[
            "40005 ",
            "40005 isv.app-call-limited",
            "40005 isv.method-call-limited",
            "40002 app-call-limited",
            "40004 method-call-limited",
        ],
        WAIT,
    ),
    (
        &[
            "40004 ACQ.INVALID_PARAMETER",
            "40004 ACQ.REFUND_AMT_NOT_EQUAL_TOTAL",
            "40004 ACQ.REASON_TRADE_REFUND_FEE_ERR",
            "40004 ACQ.REFUND_FEE_ERROR",
            "40004 ACQ.REASON_TRADE_BEEN_FREEZEN",
            "40004 ACQ.TRADE_NOT_ALLOW_REFUND",
            "20001 aop.invalid-app-auth-token",
            "40001 isv.missing-method",
            "40002 isv.invalid-signature",
            "40006 isv.insufficient-isv-permissions",
        ],
        PERSON,
    ),
    (
        &[
            "20000 ",
            "20000 isp.unknow-error",
            "20000 ACQ.TRADE_NOT_EXIST",
            "40004 ACQ.SYSTEM_ERROR",
            "40004 AQC.SYSTEM_ERROR",
            "40004 ACQ.SYSTEMERROR",
            "40004 ACQ.DISCORDANT_REPEAT_REQUEST",
        ],
        TROUBLE,
    ),
    (&["40004 ACQ.SOMETHING_NEW", "40004 ", "49999 ", "40003 isv.x"], UNKNOWN),
    (&[" "], ["unknown unreadable"; 5]),
];

#[test]
fn alipay_codes_row_by_row() {
    let api = alipay_api(&alipay_api_config());
    let calls = alipay_calls();
    let pick = |wanted: &str| {
        let (_, method, call) = calls.iter().find(|(name, _, _)| *name == wanted).unwrap();
        (*method, call.clone())
    };
    let calls = ["payment", "refund_state", "refund", "close", "share"].map(pick);
    for (codes, expected) in ALIPAY_ROWS {
        for pair in codes {
            let (code, sub_code) = pair.split_once(' ').unwrap();
            let content = json!({ "code": code, "msg": "words", "sub_code": sub_code, "sub_msg": "words" }).to_string();
            let words = calls
                .each_ref()
                .map(|(method, call)| word(&Response::alipay(method, &content).read(api.as_ref(), call)));
            assert_eq!(words, expected, "{pair}");
            for (method, call) in &calls {
                let node = format!("{}_response", method.replace('.', "_"));
                let unsigned = Response::unsigned(200, &format!("{{\"{node}\":{content}}}"));
                assert_eq!(word(&unsigned.read(api.as_ref(), call)), "unknown unsigned", "{pair}");
                let mut failed = Response::alipay(method, &content);
                failed.status = 500;
                assert_eq!(word(&failed.read(api.as_ref(), call)), "unknown server_error", "{pair}");
            }
        }
    }
}
