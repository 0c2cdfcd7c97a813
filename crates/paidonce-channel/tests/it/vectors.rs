//! Every signed notification, answer and request with its verdict (promises P5 and P6 at the channel).
//!
//! `PAIDONCE_VECTORS=DIR` plays another folder of the same format. One line of JSON for each vector goes to stderr; what
//! can't be judged is named there and counted, never passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use paidonce_channel::alipay::{
    ALIPAY_API_URL, AlipayAccount, AlipayAccountConfig, AlipayAppConfig, AlipayKeyConfig, SignType,
};
use paidonce_channel::channel::{Acknowledgement, acknowledge, refuse};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig};
use paidonce_channel::{ChannelReceiver, Fact, Notice, OurAccounts, RawNotification, SecretText, VerifyError};
use paidonce_order::Timestamp;
use paidonce_order::command::{RefundAmount, RefundFact, RefundOutcome, ShareKind};
use paidonce_order::ids::{Channel, Digest};
use serde_json::{Value, json};

use crate::vectors_api::{self, Judged};

/// When a vector freezes no clock (Alipay has no freshness rule): 2026-01-01T12:00:00+08:00.
pub const DEFAULT_NOW_SECONDS: i64 = 1_767_240_000;

#[test]
fn vectors_are_judged_as_their_authors_say() {
    let other = std::env::var_os("PAIDONCE_VECTORS").map(|folder| from_workspace(Path::new(&folder)));
    let folder = other.clone().unwrap_or_else(own_folder);
    let report = play(&folder);
    let mut out = std::io::stderr().lock();
    for line in &report.lines {
        writeln!(out, "{line}").unwrap();
    }
    writeln!(out, "{}", report.summary()).unwrap();
    assert!(report.judged > 0, "no vector in {}", folder.display());
    assert_eq!(report.failures, Vec::<String>::new());
    if other.is_none() {
        assert_eq!(report.not_judged, Vec::<String>::new(), "every expectation of our own set is judged");
        assert_eq!((report.judged, report.not_run), (53, 0));
    }
}

#[test]
fn the_judge_of_vectors_also_accuses() {
    let keys = read_json(&own_folder().join("keys.json"));
    let [cert, redelivered, refund, forged] =
        ["wx-pay-success-cert", "wx-timestamp-299-future", "wx-refund-partial-1", "wx-signed-by-attacker"]
            .map(|id| crate::signer::vector("wechatpay_v3.json", id));
    let mut played = Played::default();
    let mut wrong = |mut vector: Value, expect: Value| {
        vector["expect"] = expect;
        let outcome = receive(&accounts(&keys, &vector), &keys, Channel::Wxpay, &vector);
        judge(&vector, &outcome, None, &mut played).wrong.len()
    };
    assert_eq!(wrong(cert.clone(), json!({ "accept": true, "http_status": [200, 204] })), 0);
    assert_eq!(wrong(redelivered.clone(), json!({ "duplicate_of": "wx-pay-success-cert" })), 0);
    for (vector, expect) in [
        (&cert, json!({ "accept": false })),
        (&cert, json!({ "signature_ok": false })),
        (&cert, json!({ "fresh": false })),
        (&cert, json!({ "http_status": [500] })),
        (&cert, json!({ "ack_body": "fail" })),
        (&cert, json!({ "must_not_record_event": true })),
        (&cert, json!({ "meaning": "refund_succeeded" })),
        (&cert, json!({ "meaning": "payment_succeeded", "amount_minor": 999 })),
        (&cert, json!({ "meaning": "payment_succeeded", "payer_paid_minor": 999 })),
        (&refund, json!({ "duplicate_of": "wx-pay-success-cert" })),
        (&refund, json!({ "meaning": "refund_succeeded", "amount_minor": 301 })),
        (&forged, json!({ "accept": true })),
        (&forged, json!({ "signature_ok": true })),
        (&forged, json!({ "reason": "stale" })),
    ] {
        assert_eq!(wrong(vector.clone(), expect.clone()), 1, "{expect}");
    }
}

#[test]
fn the_judge_of_answers_and_requests_also_accuses() {
    let keys = read_json(&own_folder().join("keys.json"));
    let wrong = |file: &str, id: &str, change: fn(&mut Value)| {
        let mut vector = crate::signer::vector(file, id);
        change(&mut vector);
        let channel = if file == "alipay.json" { Channel::Alipay } else { Channel::Wxpay };
        let judged = match text(&vector["kind"]) {
            "api_request" => vectors_api::request(&keys, channel, &vector),
            _ => vectors_api::response(&keys, channel, &vector),
        };
        judged.judge.wrong.len() + judged.judge.not_judged.len()
    };
    let (wx, ali) = ("wechatpay_v3.json", "alipay.json");
    for (file, id) in [
        (wx, "wx-resp-query-success"),
        (wx, "wx-resp-close-204"),
        (wx, "wx-req-query"),
        (ali, "ali-resp-query-ok"),
        (ali, "ali-req-query"),
    ] {
        assert_eq!(wrong(file, id, |_| ()), 0, "{id}");
    }
    for (file, id, change) in [
        (wx, "wx-resp-query-success", (|vector| vector["verified"] = json!(false)) as fn(&mut Value)),
        (wx, "wx-resp-query-success", |vector| vector["meaning"] = json!("closed_unpaid")),
        (wx, "wx-resp-query-success", |vector| vector["meaning"] = json!("a new word")),
        (wx, "wx-resp-query-success", |vector| vector["expect"] = json!({ "a new word": true })),
        (wx, "wx-resp-close-204", |vector| vector["headers"]["Wechatpay-Signature"] = json!("AAAA")),
        (wx, "wx-resp-certificates", |vector| vector["decrypted_certificate_pem"] = json!("another")),
        (ali, "ali-resp-query-ok", |vector| vector["verified"] = json!(false)),
        (ali, "ali-resp-query-not-exist", |vector| vector["meaning"] = json!("payment_succeeded")),
    ] {
        assert_eq!(wrong(file, id, change), 1, "{id}");
    }
    assert!(wrong(wx, "wx-req-query", |vector| vector["authorization"] = json!("another")) > 0);
    assert!(wrong(ali, "ali-req-query", |vector| vector["sign"] = json!("another")) > 0);
}

fn own_folder() -> PathBuf {
    from_workspace(Path::new("tests/fixtures/vectors"))
}

/// A relative folder is seen from the root of the workspace, where `cargo` was called, not from this crate.
fn from_workspace(folder: &Path) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}

#[derive(Default)]
struct Report {
    lines: Vec<Value>,
    failures: Vec<String>,
    not_judged: Vec<String>,
    judged: usize,
    not_run: usize,
}

impl Report {
    fn summary(&self) -> Value {
        json!({
            "judged": self.judged, "failed": self.failures.len(), "not_run": self.not_run,
            "not_judged": self.not_judged,
        })
    }
}

impl Report {
    fn add(&mut self, name: &str, Judged { judge, got }: Judged) {
        self.judged += 1;
        let verdict = if judge.wrong.is_empty() { "pass" } else { "FAIL" };
        self.lines.push(json!({
            "vector": name, "verdict": verdict, "wrong": judge.wrong, "not_judged": judge.not_judged, "got": got,
        }));
        self.failures.extend(judge.wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
        self.not_judged.extend(judge.not_judged.into_iter().map(|what| format!("{name}: {what}")));
    }
}

/// What our side made of a vector.
struct Outcome {
    result: Result<Notice, VerifyError>,
    answer: Acknowledgement,
}

impl Outcome {
    fn accepted(&self) -> bool {
        self.result.as_ref().is_ok_and(|notice| notice.refuse_after_recording.is_none())
    }

    fn facts(&self) -> Vec<&Fact> {
        self.result.iter().flat_map(|notice| &notice.observations).map(|observation| &observation.fact).collect()
    }

    /// Digests of the facts: equal for two messages that say the same.
    fn contents(&self) -> Vec<Digest> {
        let mut contents: Vec<Digest> = self.facts().into_iter().filter_map(content).collect();
        contents.sort_unstable();
        contents
    }

    fn words(&self) -> Value {
        match &self.result {
            Err(error) => json!({ "refused": error.code() }),
            Ok(notice) => json!({
                "facts": self.facts().into_iter().map(word).collect::<Vec<_>>(),
                "strays": notice.strays.iter().map(|stray| stray.fact.code.as_str()).collect::<Vec<_>>(),
            }),
        }
    }
}

fn content(fact: &Fact) -> Option<Digest> {
    match fact {
        Fact::Payment(fact) => Some(fact.content),
        Fact::Refund(fact) => Some(fact.content),
        Fact::Share(fact) => Some(fact.content),
        Fact::AttemptClosed(fact) => Some(fact.content),
        Fact::Flag(fact) => Some(fact.content),
        Fact::Nothing => None,
    }
}

fn word(fact: &Fact) -> &'static str {
    match fact {
        Fact::Payment(_) => "payment",
        Fact::Refund(_) => "refund",
        Fact::Share(_) => "share",
        Fact::AttemptClosed(_) => "attempt_closed",
        Fact::Flag(_) => "flag",
        Fact::Nothing => "nothing",
    }
}

/// What is remembered between the vectors of one folder.
#[derive(Default)]
struct Played {
    contents: BTreeMap<String, Vec<Digest>>,
    /// Largest cumulative refund of each trade.
    refunded: BTreeMap<String, i64>,
    totals: BTreeMap<String, i64>,
}

fn play(folder: &Path) -> Report {
    // A folder without keys of its own was signed with ours.
    let own_keys = Some(folder.join("keys.json")).filter(|keys| keys.exists());
    let keys = read_json(&own_keys.unwrap_or_else(|| own_folder().join("keys.json")));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut report, mut played) = (Report::default(), Played::default());
    for file in files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "json")) {
        let set = read_json(file);
        let order_amount = set["expected_order_amount_minor"].as_i64();
        for vector in set["vectors"].as_array().into_iter().flatten() {
            let name = format!("{}:{}", file.file_name().unwrap().to_string_lossy(), text(&vector["id"]));
            let channel = match text(&vector["id"]).split('-').next() {
                Some("wx" | "wechat") => Some(Channel::Wxpay),
                Some("ali" | "alipay") => Some(Channel::Alipay),
                Some(_) | None => None,
            };
            let judged = match (text(&vector["kind"]), channel) {
                ("notification", Some(channel)) => {
                    let outcome = receive(&accounts(&keys, vector), &keys, channel, vector);
                    let judge = judge(vector, &outcome, order_amount, &mut played);
                    Judged { judge, got: json!({ "status": outcome.answer.status, "said": outcome.words() }) }
                }
                ("api_response", Some(channel)) => vectors_api::response(&keys, channel, vector),
                ("api_request", Some(channel)) => vectors_api::request(&keys, channel, vector),
                (kind, _) => {
                    report.not_run += 1;
                    report.lines.push(json!({ "vector": name, "verdict": "not run", "kind": kind }));
                    continue;
                }
            };
            report.add(&name, judged);
        }
    }
    report
}

fn read_json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The WeChat Pay account of `keys.json`, without a mode of its own.
pub fn wxpay_config(keys: &Value) -> WxpayAccountConfig {
    let certificates = keys["cert_pem"].as_object().into_iter().flatten();
    let certificates = certificates
        .filter(|(name, _)| name.starts_with("wechat_platform"))
        .map(|(_, pem)| PlatformKeyConfig::Certificate { pem: text(pem).to_owned() });
    let public_key = PlatformKeyConfig::PublicKey {
        id: text(&keys["wechat"]["platform_pub_key_id"]).to_owned(),
        pem: text(&keys["public_pem"]["wechat_platform_pub"]).to_owned(),
    };
    WxpayAccountConfig {
        mchid: text(&keys["wechat"]["mchid"]).to_owned(),
        appids: vec![text(&keys["wechat"]["appid"]).to_owned()],
        mode: MerchantMode::Direct,
        platform_keys: certificates.chain([public_key]).collect(),
        apiv3_key: SecretText::from(text(&keys["wechat"]["api_v3_key"])),
        apiv3_key_previous: keys["wechat"]["api_v3_key_previous"].as_str().map(SecretText::from),
        api: None,
    }
}

/// The Alipay account of `keys.json`.
pub fn alipay_config(keys: &Value) -> AlipayAccountConfig {
    AlipayAccountConfig {
        seller_id: text(&keys["alipay"]["seller_id"]).to_owned(),
        apps: vec![AlipayAppConfig {
            app_id: text(&keys["alipay"]["app_id"]).to_owned(),
            key: AlipayKeyConfig::PublicKey(text(&keys["public_pem"]["alipay_platform"]).to_owned()),
            sign_type: SignType::Rsa2,
            auth_app_ids: Vec::new(),
            api: None,
        }],
        api_url: ALIPAY_API_URL.to_owned(),
    }
}

/// Accounts of `keys.json`. The other merchants of a combine payment are ours too: the vectors name no configuration.
fn accounts(keys: &Value, vector: &Value) -> OurAccounts {
    let mode = MerchantMode::Partner { sub_mchids: vec!["*".to_owned()] };
    let (wxpay, alipay) = (WxpayAccountConfig { mode, ..wxpay_config(keys) }, alipay_config(keys));
    let plaintext: Value = serde_json::from_str(text(&vector["plaintext"])).unwrap_or_default();
    let sub_orders = plaintext["sub_orders"].as_array().into_iter().flatten();
    let mchids: BTreeSet<&str> =
        sub_orders.map(|sub_order| text(&sub_order["mchid"])).chain([wxpay.mchid.as_str()]).collect();
    let configs = mchids.iter().map(|mchid| WxpayAccountConfig { mchid: (*mchid).to_owned(), ..wxpay.clone() });
    let wxpay = configs.map(|config| WxpayAccount::try_new(&config).expect("keys.json")).collect();
    let alipay = AlipayAccount::try_new(&alipay).expect("keys.json");
    OurAccounts::try_new(wxpay, vec![alipay]).unwrap()
}

fn receive(accounts: &OurAccounts, keys: &Value, channel: Channel, vector: &Value) -> Outcome {
    let account = match channel {
        Channel::Wxpay => text(&keys["wechat"]["mchid"]),
        Channel::Alipay => text(&keys["alipay"]["seller_id"]),
    };
    let receiver: Box<dyn ChannelReceiver> = accounts.find_receiver(channel, account).unwrap();
    let headers: Vec<(String, Vec<u8>)> = vector["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), text(value).as_bytes().to_vec()))
        .collect();
    let now = vector["clock_now"].as_i64().unwrap_or(DEFAULT_NOW_SECONDS);
    let raw = RawNotification {
        headers: &headers,
        body: text(&vector["body"]).as_bytes(),
        now: Timestamp::from_micros(now * 1_000_000),
    };
    let result = receiver.receive(raw).map(|verified| verified.into_inner());
    let answer = match &result {
        Err(error) => refuse(channel, error.http_status(), &error.to_string()),
        Ok(notice) => match notice.refuse_after_recording {
            Some(why) => refuse(channel, why.http_status(), why.message()),
            None => acknowledge(channel),
        },
    };
    Outcome { result, answer }
}

#[derive(Default)]
pub struct Judge {
    pub wrong: Vec<String>,
    pub not_judged: Vec<String>,
}

impl Judge {
    #[expect(clippy::fn_params_excessive_bools, reason = "an assertion takes what holds")]
    pub fn check(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.wrong.push(what.into());
        }
    }
}

fn judge(vector: &Value, outcome: &Outcome, order_amount: Option<i64>, played: &mut Played) -> Judge {
    let mut judge = Judge::default();
    let expect = &vector["expect"];
    for (key, value) in expect.as_object().into_iter().flatten() {
        match key.as_str() {
            "accept" => judge.check(Some(outcome.accepted()) == value.as_bool(), format!("accept is not {value}")),
            "signature_ok" => judge_signature(&mut judge, outcome, value),
            "fresh" => {
                let stale = matches!(outcome.result, Err(VerifyError::Stale { .. }));
                judge.check(Some(!stale) == value.as_bool(), format!("fresh is not {value}"));
            }
            "http_status" => {
                let status = u64::from(outcome.answer.status);
                let listed =
                    value.as_array().into_iter().flatten().chain([value]).any(|one| one.as_u64() == Some(status));
                judge.check(listed, format!("status {status} is not in {value}"));
            }
            "ack_body" => judge.check(outcome.answer.body == text(value).as_bytes(), format!("body is not {value}")),
            "must_not_record_event" => {
                let nothing = outcome.facts().is_empty() && !outcome.accepted();
                judge.check(Some(nothing) == value.as_bool(), "something would be recorded");
            }
            "duplicate_of" => match played.contents.get(text(value)) {
                Some(first) => judge.check(*first == outcome.contents(), format!("says another fact than {value}")),
                None => judge.not_judged.push(format!("duplicate_of {value}, which was not played before")),
            },
            "decrypt" => {
                let opened = outcome.result.as_ref().is_ok_and(|notice| notice.refuse_after_recording.is_none());
                judge.check(Some(opened) == value.as_bool(), format!("decrypt is not {value}"));
            }
            "meaning" => judge_meaning(&mut judge, outcome, expect, (order_amount, played)),
            "reason" => judge_reason(&mut judge, outcome, text(value)),
            // Read by `meaning`, or words for people.
            "amount_minor" | "payer_paid_minor" | "cumulative_refund_minor" | "delta_minor" | "order_state" => {
                judge.check(expect.get("meaning").is_some(), format!("{key} without a meaning"));
            }
            "note" | "event_amount_is" => {}
            other => judge.not_judged.push(format!("expect.{other}")),
        }
    }
    played.contents.insert(text(&vector["id"]).to_owned(), outcome.contents());
    judge
}

fn judge_signature(judge: &mut Judge, outcome: &Outcome, expected: &Value) {
    // A message refused for its form (header gone, algorithm refused) is never checked: it says nothing of the crypto.
    let checked = match &outcome.result {
        Ok(_) | Err(VerifyError::NotOurs { .. } | VerifyError::Unreadable { .. }) => Some(true),
        Err(VerifyError::BadSignature { .. } | VerifyError::Probe | VerifyError::UnknownSerial { .. }) => Some(false),
        Err(VerifyError::Malformed { .. } | VerifyError::Stale { .. } | VerifyError::AlgorithmNotAllowed { .. }) => {
            None
        }
    };
    judge.check(checked.is_none_or(|ok| Some(ok) == expected.as_bool()), format!("signature_ok is not {expected}"));
}

fn judge_reason(judge: &mut Judge, outcome: &Outcome, reason: &str) {
    let Err(error) = &outcome.result else {
        judge.check(matches!(reason, "decrypt"), format!("not refused for {reason}"));
        return;
    };
    let fits = match reason {
        "probe" => matches!(error, VerifyError::Probe),
        "signature" => matches!(error, VerifyError::BadSignature { .. } | VerifyError::Malformed { .. }),
        "unknown_serial" => matches!(error, VerifyError::UnknownSerial { .. }),
        "stale" => matches!(error, VerifyError::Stale { .. }),
        "missing_header" | "sign_has_spaces" => matches!(error, VerifyError::Malformed { .. }),
        "sign_type_not_allowed" => matches!(error, VerifyError::AlgorithmNotAllowed { .. }),
        other => return judge.not_judged.push(format!("reason {other}")),
    };
    judge.check(fits, format!("refused as {}, not for {reason}", error.code()));
}

fn judge_meaning(
    judge: &mut Judge,
    outcome: &Outcome,
    expect: &Value,
    (order_amount, played): (Option<i64>, &mut Played),
) {
    let facts = outcome.facts();
    let payment = facts.iter().find_map(|fact| if let Fact::Payment(fact) = fact { Some(fact) } else { None });
    let refund = facts.iter().find_map(|fact| if let Fact::Refund(fact) = fact { Some(fact) } else { None });
    let share = facts.iter().find_map(|fact| if let Fact::Share(fact) = fact { Some(fact) } else { None });
    let amount = expect["amount_minor"].as_i64();
    let meaning = text(&expect["meaning"]);
    let vector_is_wxpay = outcome.result.as_ref().is_ok_and(|notice| notice.evidence.account.channel == Channel::Wxpay);
    let words: Vec<&str> = facts.iter().map(|fact| word(fact)).collect();
    let right = match meaning {
        "payment_succeeded" if facts.len() > 1 => {
            let payments: Vec<i64> = facts
                .iter()
                .filter_map(|fact| if let Fact::Payment(fact) = fact { Some(fact.amount.amount_minor) } else { None })
                .collect();
            let sum: i64 = payments.iter().sum();
            payments.len() == facts.len() && amount.is_none_or(|amount| amount == sum)
        }
        "payment_succeeded" | "payment_finalised_no_new_money" | "surplus_payment" => payment.is_some_and(|fact| {
            let trade = fact.payment.channel_trade_no.as_str().to_owned();
            let minor = fact.amount.amount_minor;
            let known = played.totals.contains_key(&trade);
            if meaning != "surplus_payment" {
                played.totals.insert(trade, minor);
            }
            let payer = expect["payer_paid_minor"].as_i64();
            words == ["payment"]
                && amount.is_none_or(|amount| amount == minor)
                && payer.is_none_or(|payer| fact.payer_amount.map(|money| money.amount_minor) == Some(payer))
                && (meaning != "surplus_payment" || order_amount.is_some_and(|terms| terms != minor))
                && (meaning != "payment_finalised_no_new_money" || known)
        }),
        "refund_succeeded" | "refund_abnormal_not_final" | "refund_failed_final" => refund.is_some_and(|fact| {
            let outcome_fits = match fact.outcome {
                RefundOutcome::Succeeded => meaning == "refund_succeeded",
                RefundOutcome::Failed => meaning == "refund_failed_final",
                RefundOutcome::Stalled => meaning == "refund_abnormal_not_final",
            };
            outcome_fits && refund_figures_fit(fact, expect, played)
        }),
        "profit_sharing_received" | "profit_sharing_succeeded" | "profit_sharing_returned" => {
            share.is_some_and(|fact| {
                let returned = fact.kind == ShareKind::Returned;
                returned == (meaning == "profit_sharing_returned")
                    && amount.is_none_or(|amount| amount == fact.amount.amount_minor)
            })
        }
        // WeChat Pay never announces a close: a success event that says so is flagged.
        "closed_unpaid" => words == ["attempt_closed"] || (words == ["flag"] && vector_is_wxpay),
        "not_paid_yet" => words == ["flag"] || words == ["nothing"],
        "created_unpaid" => words == ["nothing"],
        "ignored_but_kept" => words.is_empty() && outcome.result.as_ref().is_ok_and(|notice| !notice.strays.is_empty()),
        "reject_business" => matches!(outcome.result, Err(VerifyError::NotOurs { .. })),
        other => return judge.not_judged.push(format!("meaning {other}")),
    };
    judge.check(right, format!("does not mean {meaning}: {}", outcome.words()));
}

fn refund_figures_fit(fact: &RefundFact, expect: &Value, played: &mut Played) -> bool {
    let trade = fact.payment.channel_trade_no.as_str().to_owned();
    match fact.amount {
        RefundAmount::Exact(money) => expect["amount_minor"].as_i64().is_none_or(|amount| amount == money.amount_minor),
        RefundAmount::Cumulative(money) => {
            let total = played.totals.get(&trade).copied();
            let before = played.refunded.insert(trade, money.amount_minor).unwrap_or(0);
            let state = match total {
                Some(total) if money.amount_minor >= total => "fully_refunded",
                Some(_) | None => "partially_refunded",
            };
            expect["cumulative_refund_minor"].as_i64().is_none_or(|sum| sum == money.amount_minor)
                && expect["delta_minor"].as_i64().is_none_or(|delta| delta == money.amount_minor - before)
                && expect["order_state"].as_str().is_none_or(|expected| expected == state)
        }
    }
}
