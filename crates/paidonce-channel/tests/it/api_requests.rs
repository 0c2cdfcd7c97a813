//! What our calls look like on the wire (facts A3 to A6, B3 to B6): signatures, paths, both numbers of a partner, nothing that
//! an HTTP client would rewrite.

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_channel::alipay::{AlipayAccount, AlipayApiCerts, AlipayKeyConfig, SignType};
use paidonce_channel::api::{ApiCall, ApiRequest, Ask};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig};
use paidonce_channel::{OurAccounts, SecretText};
use serde_json::{Value, json};

use crate::api_signer::*;
use crate::signer::*;

fn spki(name: &str) -> Vec<u8> {
    let pem = KEYS["public_pem"][name].as_str().unwrap();
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    BASE64.decode(base64).unwrap()
}

fn verifies(name: &str, message: &str, signature: &str) -> bool {
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, spki(name));
    key.verify(message.as_bytes(), &BASE64.decode(signature).unwrap()).is_ok()
}

fn header<'r>(request: &'r ApiRequest, name: &str) -> Option<&'r str> {
    request.headers.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
}

fn path(request: &ApiRequest) -> &str {
    request.url.strip_prefix("https://api.mch.weixin.qq.com").unwrap()
}

fn partner() -> WxpayAccountConfig {
    let mode = MerchantMode::Partner { sub_mchids: vec!["1900000109".to_owned()] };
    WxpayAccountConfig { mode, ..wxpay_api_config() }
}

fn form(request: &ApiRequest) -> Vec<(String, String)> {
    let body = std::str::from_utf8(&request.body).unwrap();
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_encoding::percent_decode_str(&spaced).decode_utf8().unwrap().into_owned()
    };
    body.split('&').map(|pair| pair.split_once('=').unwrap()).map(|(key, value)| (decode(key), decode(value))).collect()
}

#[test]
fn every_wxpay_call_is_signed_over_exactly_what_is_sent() {
    let api = wxpay_api(&wxpay_api_config());
    for (name, call) in wxpay_calls() {
        let request = api.request(&call, &moment()).unwrap();
        let body = String::from_utf8(request.body.clone()).unwrap();
        let message = format!("{}\n{}\n{NOW_SECONDS}\n{NONCE}\n{body}\n", request.method, path(&request));
        let authorization = header(&request, "Authorization").unwrap();
        let start = format!(
            "WECHATPAY2-SHA256-RSA2048 mchid=\"{MCHID}\",nonce_str=\"{NONCE}\",timestamp=\"{NOW_SECONDS}\",serial_no=\"{MERCHANT_SERIAL}\",signature=\""
        );
        let signature = authorization.strip_prefix(&start).unwrap().strip_suffix('"').unwrap();
        assert!(verifies("wechat_merchant", &message, signature), "{name}");
        assert_eq!(header(&request, "Accept"), Some("application/json"), "{name}");
        assert!(header(&request, "User-Agent").is_some_and(|agent| agent.starts_with("paidonce/")), "{name}");
        assert_eq!(header(&request, "Wechatpay-Serial"), Some(PUBLIC_KEY_ID), "{name}");
        assert_eq!(header(&request, "Content-Type").is_some(), !body.is_empty(), "{name}");
        assert_eq!(request.method == "GET", body.is_empty(), "{name}");
        assert!(!format!("{request:?}").contains(signature), "a signature is not for logs");
    }
}

#[test]
fn an_account_with_certificates_alone_asks_for_no_public_key_answer() {
    let mut config = wxpay_api_config();
    config.platform_keys.retain(|key| matches!(key, PlatformKeyConfig::Certificate { .. }));
    let request = wxpay_api(&config).request(&ask_payment(), &moment()).unwrap();
    assert_eq!(header(&request, "Wechatpay-Serial"), None);
}

#[test]
fn wxpay_paths_are_those_of_the_documents() {
    let api = wxpay_api(&wxpay_api_config());
    let paths: Vec<(&str, String)> = wxpay_calls()
        .into_iter()
        .map(|(name, call)| {
            let request = api.request(&call, &moment()).unwrap();
            (name, format!("{} {}", request.method, path(&request)))
        })
        .collect();
    let expected = [
        ("payment", format!("GET /v3/pay/transactions/out-trade-no/{ORDER_NO}?mchid={MCHID}")),
        ("by_trade_no", format!("GET /v3/pay/transactions/id/{TRADE_NO}?mchid={MCHID}")),
        ("combine", "GET /v3/combine-transactions/out-trade-no/COMBINE1".to_owned()),
        ("close_combine", "POST /v3/combine-transactions/out-trade-no/COMBINE1/close".to_owned()),
        ("refund_state", format!("GET /v3/refund/domestic/refunds/{REFUND_NO}")),
        ("refund", "POST /v3/refund/domestic/refunds".to_owned()),
        ("close", format!("POST /v3/pay/transactions/out-trade-no/{ORDER_NO}/close")),
        ("share", format!("GET /v3/profitsharing/orders/SHARE1?transaction_id={TRADE_NO}")),
        ("certificates", "GET /v3/certificates".to_owned()),
    ];
    assert_eq!(paths, expected);
}

#[test]
fn gotcha_33_a_partners_calls_carry_both_numbers() {
    let api = wxpay_api(&partner());
    let of_sub = |call: ApiCall| ApiCall { sub_mchid: Some("1900000109".to_owned()), ..call };
    let path_of = |call: ApiCall| path(&api.request(&of_sub(call), &moment()).unwrap()).to_owned();
    let both = format!("sp_mchid={MCHID}&sub_mchid=1900000109");
    assert_eq!(path_of(ask_payment()), format!("/v3/pay/partner/transactions/out-trade-no/{ORDER_NO}?{both}"));
    assert_eq!(path_of(wxpay_calls()[1].1.clone()), format!("/v3/pay/partner/transactions/id/{TRADE_NO}?{both}"));
    assert_eq!(
        path_of(ask_refund_state(wxpay_payment_ref())),
        format!("/v3/refund/domestic/refunds/{REFUND_NO}?sub_mchid=1900000109")
    );
    assert_eq!(
        path_of(ask_share(wxpay_payment_ref())),
        format!("/v3/profitsharing/orders/SHARE1?sub_mchid=1900000109&transaction_id={TRADE_NO}")
    );
    let close = api.request(&of_sub(ask_close()), &moment()).unwrap();
    assert_eq!(path(&close), format!("/v3/pay/partner/transactions/out-trade-no/{ORDER_NO}/close"));
    let body: Value = serde_json::from_slice(&close.body).unwrap();
    assert_eq!(body, json!({ "sp_mchid": MCHID, "sub_mchid": "1900000109" }));
    let refund = api.request(&of_sub(ask_refund(wxpay_payment_ref())), &moment()).unwrap();
    let body: Value = serde_json::from_slice(&refund.body).unwrap();
    assert_eq!(body["sub_mchid"], "1900000109");
}

#[test]
fn a_combine_payment_is_closed_with_its_app_and_every_part() {
    let close = wxpay_api(&wxpay_api_config()).request(&close_combine(), &moment()).unwrap();
    let body: Value = serde_json::from_slice(&close.body).unwrap();
    let own = json!({ "mchid": MCHID, "out_trade_no": "SUB001" });
    let of_sub = json!({ "mchid": OTHER_MCHID, "out_trade_no": "SUB002", "sub_mchid": "1900000109" });
    assert_eq!(body, json!({ "combine_appid": APPID, "sub_orders": [own, of_sub] }));
}

#[test]
fn a_call_that_can_not_be_made_says_what_to_add() {
    let wants = |config: &WxpayAccountConfig, call: &ApiCall| {
        let problem = wxpay_api(config).request(call, &moment()).unwrap_err();
        (problem.field, problem.problem)
    };
    let of_sub = |sub_mchid: &str| ApiCall { sub_mchid: Some(sub_mchid.to_owned()), ..ask_payment() };
    for (config, call, hint) in [
        (partner(), ask_payment(), "sub_mchid"),
        (partner(), of_sub("1900000999"), "sub_mchids"),
        (wxpay_api_config(), of_sub("1900000109"), "partner = true"),
    ] {
        let (field, problem) = wants(&config, &call);
        assert_eq!(field, "sub_mchid");
        assert!(problem.contains(hint), "{problem}");
    }
    // An HTTP client would fold it away and ask another path than the signed one.
    let (payment, out_order_no) = (wxpay_payment_ref(), "..".to_owned());
    let dots = ask(Ask::Share { order_no: order_no(ORDER_NO), payment, out_order_no });
    assert_eq!(wants(&wxpay_api_config(), &dots).0, "out_order_no");
    for call in [ask(Ask::Certificates), ask_combine(), close_combine()] {
        assert!(alipay_api(&alipay_api_config()).request(&call, &moment()).is_err());
    }
}

#[test]
fn an_account_without_credentials_can_not_ask() {
    let wxpay = WxpayAccount::try_new(&wxpay_config()).unwrap();
    let alipay = AlipayAccount::try_new(&alipay_config()).unwrap();
    assert!(!wxpay.can_ask() && !alipay.can_ask());
    let ours = OurAccounts::try_new(vec![wxpay], vec![alipay]).unwrap();
    for text in ["wxpay:1900000001", "alipay:2088000000000002", "wxpay:1900000777"] {
        assert!(ours.find_api(&account(text)).is_none(), "{text}");
    }
}

#[test]
fn gotcha_16_a_refund_sent_again_is_the_same_refund() {
    // Only clock and nonce may differ between two tries: number, amounts and payment stay.
    let again = paidonce_channel::api::ApiMoment { nonce: "ANOTHER".to_owned(), ..moment() };
    let api = wxpay_api(&wxpay_api_config());
    let call = ask_refund(wxpay_payment_ref());
    let (first, second) = (api.request(&call, &moment()).unwrap(), api.request(&call, &again).unwrap());
    assert_eq!((first.url, &first.body), (second.url, &second.body));
    let body: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!(
        body,
        json!({
            "transaction_id": TRADE_NO, "out_refund_no": REFUND_NO, "reason": "退货 \"A\"",
            "amount": { "refund": 300, "total": 1000, "currency": "CNY" }
        })
    );
    let request = alipay_api(&alipay_api_config()).request(&ask_refund(alipay_payment_ref()), &moment()).unwrap();
    let form = form(&request);
    let content = &form.iter().find(|(key, _)| key == "biz_content").unwrap().1;
    assert!(content.is_ascii());
    let content: Value = serde_json::from_str(content).unwrap();
    assert_eq!(
        content,
        json!({
            "trade_no": ALIPAY_TRADE_NO, "out_request_no": REFUND_NO, "refund_amount": "3.00",
            "refund_reason": "退货 \"A\""
        })
    );
}

#[test]
fn every_alipay_call_is_signed_over_all_parameters_sorted() {
    let api = alipay_api(&alipay_api_config());
    for (name, method, call) in alipay_calls() {
        let request = api.request(&call, &moment()).unwrap();
        assert_eq!(request.url, "https://openapi.alipay.com/gateway.do");
        let mut pairs = form(&request);
        let sign = pairs.pop().unwrap();
        assert_eq!(sign.0, "sign");
        pairs.sort();
        assert!(pairs.contains(&("method".to_owned(), method.to_owned())), "{name}");
        assert!(pairs.contains(&("timestamp".to_owned(), "2026-01-01 12:00:00".to_owned())), "{name}");
        assert!(pairs.contains(&("sign_type".to_owned(), "RSA2".to_owned())), "{name}");
        let message: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert!(verifies("alipay_app", &message.join("&"), &sign.1), "{name}");
    }
}

#[test]
fn in_certificate_mode_a_request_names_both_certificates() {
    let pem = KEYS["cert_pem"]["wechat_platform_a"].as_str().unwrap();
    let mut config = alipay_api_config();
    let certs = AlipayApiCerts { app_cert: pem.to_owned(), alipay_root_cert: format!("{pem}{pem}") };
    config.apps[0].api.as_mut().unwrap().certs = Some(certs);
    let form = form(&alipay_api(&config).request(&ask_payment(), &moment()).unwrap());
    let find = |wanted: &str| form.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
    // md5("CN=Test platform A,O=Example test only,C=CN59186131161814993445020881373302330871414106811")
    let sn = "63d68b7a0edcb6c687f2849fa2f3f614";
    assert_eq!(find("app_cert_sn"), Some(sn));
    assert_eq!(find("alipay_root_cert_sn"), Some(format!("{sn}_{sn}").as_str()));
}

#[test]
fn all_problems_of_credentials_are_told_and_show_no_secret() {
    let mut config = wxpay_api_config();
    let api = config.api.as_mut().unwrap();
    api.api_url = "api.mch.weixin.qq.com".to_owned();
    api.merchant_serial = "not hex".to_owned();
    api.merchant_private_key = SecretText::from("MIIEsecretsecret");
    let problems = WxpayAccount::try_new(&config).unwrap_err();
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["api_url", "merchant_serial", "merchant_private_key"]);
    assert!(!format!("{problems:?}{config:?}").contains("MIIEsecret"));
    for wrong in ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "AAAA"] {
        let mut config = alipay_api_config();
        config.apps[0].api.as_mut().unwrap().private_key = SecretText::from(wrong);
        assert_eq!(AlipayAccount::try_new(&config).unwrap_err()[0].field, "apps[0].app_private_key", "{wrong}");
    }
    let mut config = alipay_api_config();
    config.apps[0].sign_type = SignType::Rsa;
    assert_eq!(AlipayAccount::try_new(&config).unwrap_err()[0].field, "apps[0].sign_type");
    let mut config = alipay_api_config();
    config.apps[0].key =
        AlipayKeyConfig::Certificate(KEYS["cert_pem"]["wechat_platform_a"].as_str().unwrap().to_owned());
    assert_eq!(AlipayAccount::try_new(&config).unwrap_err()[0].field, "apps[0].app_cert");
}

#[test]
fn our_private_key_may_be_pkcs8_or_pkcs1_pem_or_bare_base64() {
    let pem = KEYS["private_pem"]["alipay_app"].as_str().unwrap();
    let bare: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    // PKCS#8 wraps the PKCS#1 key in an OCTET STRING: 26 bytes stand before it for a 2048-bit key.
    let pkcs1 = BASE64.encode(&BASE64.decode(&bare).unwrap()[26..]);
    let pkcs1_pem = format!("-----BEGIN RSA PRIVATE KEY-----\n{pkcs1}\n-----END RSA PRIVATE KEY-----\n");
    let body = |text: &str| {
        let mut config = alipay_api_config();
        config.apps[0].api.as_mut().unwrap().private_key = SecretText::from(text);
        alipay_api(&config).request(&ask_payment(), &moment()).unwrap().body
    };
    for text in [bare.as_str(), &pkcs1, &pkcs1_pem, &format!("  {pem}\n\n")] {
        assert_eq!(body(text), body(pem));
    }
}
