//! Profit sharing: several spellings, one entry for each receiver.

use paidonce_channel::wxpay::{MerchantMode, WxpayAccountConfig};
use paidonce_channel::{Fact, Notice};
use paidonce_order::command::{ShareFact, ShareKind};
use serde_json::{Value, json};

use crate::signer::*;

fn shares(notice: &Notice) -> Vec<&ShareFact> {
    assert!(notice.strays.is_empty(), "{:?}", notice.strays);
    assert!(notice.observations.iter().all(|observation| observation.order_no.is_none()));
    notice
        .observations
        .iter()
        .map(|observation| match &observation.fact {
            Fact::Share(fact) => fact,
            other => panic!("not a share: {other:?}"),
        })
        .collect()
}

#[test]
fn a_receiver_may_be_an_object_or_a_list_and_is_told_apart_by_type_and_account() {
    let object = Wxpay::share(&wxpay_share()).receive().unwrap();
    let mut listed = wxpay_share();
    listed["receiver"] = json!([listed["receiver"]]);
    let listed = Wxpay::share(&listed).receive().unwrap();
    assert_eq!(shares(&object), shares(&listed));
    let share = shares(&object)[0];
    assert_eq!((share.kind, share.amount.amount_minor, share.share_no.as_str()), (ShareKind::Shared, 888, "P1"));
    assert_eq!(share.channel_share_no.as_deref(), Some("3008450740201411110007820472"));
    assert_eq!(share.receiver_type, "MERCHANT_ID");
    assert!(!format!("{share:?}").contains("1900000109"), "the account is hashed: it may be a person's");

    let mut three = wxpay_share();
    three["receiver"] = json!([
        {"type": "MERCHANT_ID", "account": "1900000771", "amount": 100},
        {"type": "MERCHANT_ID", "account": "1900000772", "amount": 200},
        {"type": "PERSONAL_OPENID", "account": "oTEST9", "amount": 50},
    ]);
    let three = Wxpay::share(&three).receive().unwrap();
    let told = shares(&three);
    assert_eq!(told.iter().map(|share| share.amount.amount_minor).sum::<i64>(), 350);
    let mut receivers: Vec<_> = told.iter().map(|share| (share.receiver_type.as_str(), share.receiver)).collect();
    receivers.sort();
    receivers.dedup();
    assert_eq!(receivers.len(), 3);

    for odd in [json!([]), json!([1]), json!("x"), json!(vec![json!({}); 51])] {
        let mut plaintext = wxpay_share();
        plaintext["receiver"] = odd;
        let notice = Wxpay::share(&plaintext).receive().unwrap();
        assert!(notice.observations.is_empty() && !notice.strays.is_empty());
    }
}

#[test]
fn a_partner_form_is_booked_for_the_service_provider() {
    let mut plaintext = wxpay_share();
    plaintext.as_object_mut().unwrap().remove("mchid");
    plaintext["sp_mchid"] = json!(MCHID);
    plaintext["sub_mchid"] = json!("1900000003");
    let config =
        WxpayAccountConfig { mode: MerchantMode::Partner { sub_mchids: vec!["*".to_owned()] }, ..wxpay_config() };
    let notice = Wxpay::share(&plaintext).receive_at(&config).unwrap();
    assert_eq!(shares(&notice)[0].payment.account.to_string(), "wxpay:1900000001");
}

#[test]
fn who_only_receives_has_no_order_and_a_stranger_has_nothing_here() {
    let shared_with = |account: &str| {
        let mut plaintext = wxpay_share();
        plaintext["mchid"] = json!("1900000666");
        plaintext["receiver"]["account"] = json!(account);
        Wxpay::share(&plaintext).receive()
    };
    assert_eq!(only_stray(&shared_with(MCHID).unwrap()), "share_received");
    assert_eq!(shared_with("1900000667").unwrap_err().code(), "not_ours");
}

#[test]
fn a_share_between_two_of_our_accounts_belongs_to_the_sharers_payment() {
    let mut plaintext = wxpay_share();
    plaintext["mchid"] = json!(OTHER_MCHID);
    plaintext["receiver"]["account"] = json!(MCHID);
    let notice = Wxpay::share(&plaintext).receive().unwrap();
    assert_eq!(shares(&notice)[0].payment.account.to_string(), "wxpay:1900000002");
    plaintext["receiver"]["account"] = json!("1900000667");
    assert_eq!(Wxpay::share(&plaintext).receive().unwrap_err().code(), "not_ours", "not told to the one who received");
}

#[test]
fn a_return_is_known_by_its_own_number_where_it_has_one() {
    let mut plaintext = wxpay_share();
    plaintext["out_return_no"] = json!("R1");
    let notice = Wxpay::share(&plaintext).receive().unwrap();
    assert_eq!((shares(&notice)[0].kind, shares(&notice)[0].share_no.as_str()), (ShareKind::Returned, "R1"));
}

fn settlement(details: Value) -> Notice {
    let biz_content = json!({
        "operation_dt": "2026-01-01 12:00:00", "settle_no": "20260101002530020076000000000001",
        "trade_no": "2026010122001400000500000001", "out_request_no": "SET1", "royalty_detail_list": details,
    });
    Alipay::gateway("alipay.trade.order.settle.notify", &biz_content.to_string()).receive().unwrap()
}

fn detail(operation_type: &str, state: &str, amount: Value) -> Value {
    json!({
        "operation_type": operation_type, "execute_dt": "2026-01-01 12:00:01", "trans_out": SELLER_ID,
        "trans_out_type": "userId", "trans_in": "2088000000000555", "trans_in_type": "userId", "amount": amount,
        "state": state, "detail_id": "100", "error_code": "", "error_desc": "",
    })
}

#[test]
fn an_alipay_settlement_tells_each_transfer_by_its_own_state() {
    let notice = settlement(json!([
        detail("transfer", "SUCCESS", json!("8.88")),
        detail("transfer", "PROCESSING", json!("1.00")),
        detail("transfer_refund", "SUCCESS", json!("0.88")),
        detail("transfer", "FAIL", json!("2.00")),
    ]));
    let [shared, waiting, returned] = notice.observations.as_slice() else { panic!("{:?}", notice.observations) };
    assert_eq!(waiting.fact, Fact::Nothing);
    let (Fact::Share(shared), Fact::Share(returned)) = (&shared.fact, &returned.fact) else { panic!() };
    assert_eq!((shared.kind, shared.amount.amount_minor, shared.share_no.as_str()), (ShareKind::Shared, 888, "SET1"));
    assert_eq!(shared.occurred_at.to_string(), "2026-01-01T04:00:01Z");
    assert_eq!((returned.kind, returned.amount.amount_minor), (ShareKind::Returned, 88));
    assert_eq!(returned.share_no, "SET1-100");
    assert_eq!(notice.strays[0].fact.code, "share_failed");
}

#[test]
fn an_amount_may_be_a_text_or_a_number_but_never_a_float() {
    for (amount, fen) in [(json!("8.88"), 888), (json!(8.88), 888), (json!(88), 8800), (json!("88.8"), 8880)] {
        let notice = settlement(json!([detail("transfer", "SUCCESS", amount)]));
        assert_eq!(shares(&notice)[0].amount.amount_minor, fen);
    }
    for amount in [json!("8.888"), json!(0), json!("-1"), json!(1e30), json!("")] {
        let notice = settlement(json!([detail("transfer", "SUCCESS", amount)]));
        assert_eq!(only_stray(&notice), "unusable_amount");
    }
}
