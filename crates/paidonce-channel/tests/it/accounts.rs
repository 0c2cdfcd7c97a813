//! Configuration: every problem is named with its field and what to do, and no secret shows.

use paidonce_channel::alipay::{AlipayAccount, AlipayAccountConfig, AlipayKeyConfig};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig};
use paidonce_channel::{OurAccounts, SecretText};
use paidonce_order::AccountRef;
use paidonce_order::ids::Channel;

use crate::signer::*;

fn key_text(kind: &str, name: &str) -> String {
    KEYS[kind][name].as_str().unwrap().to_owned()
}

#[test]
fn all_problems_of_a_wxpay_account_are_told_together() {
    let config = WxpayAccountConfig {
        mchid: "19 0".to_owned(),
        appids: vec![],
        mode: MerchantMode::Partner { sub_mchids: vec![] },
        platform_keys: vec![
            PlatformKeyConfig::Certificate { pem: key_text("public_pem", "wechat_platform_a") },
            PlatformKeyConfig::PublicKey { id: "0119".to_owned(), pem: String::new() },
            PlatformKeyConfig::PublicKey {
                id: PUBLIC_KEY_ID.to_owned(),
                pem: key_text("private_pem", "wechat_platform_pub"),
            },
        ],
        apiv3_key: SecretText::from("too-short-secret"),
        apiv3_key_previous: Some(SecretText::from("")),
        api: None,
    };
    let problems = WxpayAccount::try_new(&config).unwrap_err();
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "mchid",
            "appids",
            "sub_mchids",
            "platform_keys[0].certificate",
            "platform_keys[1].public_key_id",
            "platform_keys[2].public_key",
            "apiv3_key",
            "apiv3_key_previous"
        ]
    );
    let told = format!("{problems:?}{config:?}");
    assert!(!told.contains("too-short-secret"), "{told}");
    let no_keys = WxpayAccountConfig { platform_keys: vec![], ..wxpay_config() };
    assert_eq!(WxpayAccount::try_new(&no_keys).unwrap_err()[0].field, "platform_keys");
    let twice = WxpayAccountConfig {
        platform_keys: [wxpay_config().platform_keys, wxpay_config().platform_keys].concat(),
        ..wxpay_config()
    };
    assert_eq!(WxpayAccount::try_new(&twice).unwrap_err().len(), 2);
}

#[test]
fn all_problems_of_an_alipay_account_are_told_together() {
    let mut config = alipay_config();
    config.seller_id = String::new();
    config.apps[0].app_id = "app id".to_owned();
    config.apps[0].key = AlipayKeyConfig::PublicKey("not a key".to_owned());
    let problems = AlipayAccount::try_new(&config).unwrap_err();
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["seller_id", "apps[0].app_id", "apps[0].alipay_public_key"]);
    let no_apps = AlipayAccountConfig { apps: vec![], ..alipay_config() };
    assert_eq!(AlipayAccount::try_new(&no_apps).unwrap_err()[0].field, "apps");
    let mut twice = alipay_config();
    twice.apps.push(twice.apps[0].clone());
    assert_eq!(AlipayAccount::try_new(&twice).unwrap_err()[0].field, "apps[1].app_id");
}

#[test]
fn a_public_key_may_be_pem_or_the_bare_base64_of_the_console_or_a_certificate() {
    let pem = key_text("public_pem", "alipay_platform");
    let bare: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let windows = pem.replace('\n', "\r\n");
    for text in [pem.clone(), bare.clone(), format!("  {bare}\n"), windows] {
        let mut config = alipay_config();
        config.apps[0].key = AlipayKeyConfig::PublicKey(text);
        assert_eq!(paid_minor(&Alipay::payment().receive_at(&config).unwrap()), 8888);
    }
    // A certificate: its public key counts, so a message signed by another key is refused.
    let mut config = alipay_config();
    config.apps[0].key = AlipayKeyConfig::Certificate(key_text("cert_pem", "wechat_platform_a"));
    assert_eq!(Alipay::payment().receive_at(&config).unwrap_err().code(), "bad_signature");
    let signed_by_it = Alipay { signing_key: "wechat_platform_a", ..Alipay::payment() };
    assert_eq!(paid_minor(&signed_by_it.receive_at(&config).unwrap()), 8888);
    // The app's own key instead of Alipay's: the usual mistake is refused at the first message.
    config.apps[0].key = AlipayKeyConfig::PublicKey(key_text("public_pem", "alipay_app"));
    assert_eq!(Alipay::payment().receive_at(&config).unwrap_err().code(), "bad_signature");
}

#[test]
fn each_app_of_a_seller_has_its_own_key() {
    let mut config = alipay_config();
    let mut second = config.apps[0].clone();
    second.app_id = "2021000000000002".to_owned();
    second.key = AlipayKeyConfig::PublicKey(key_text("public_pem", "alipay_app"));
    config.apps.push(second);
    let second_app = Alipay::payment().set("app_id", "2021000000000002").set("auth_app_id", "2021000000000002");
    let by_its_key = Alipay { signing_key: "alipay_app", ..second_app.clone() };
    assert_eq!(by_its_key.receive_at(&config).unwrap().evidence.key_id, "2021000000000002/RSA2");
    assert_eq!(second_app.receive_at(&config).unwrap_err().code(), "bad_signature", "never another app's key");
    assert_eq!(paid_minor(&Alipay::payment().receive_at(&config).unwrap()), 8888);
}

#[test]
fn the_directory_finds_receivers_by_channel_and_account() {
    let wxpay = || WxpayAccount::try_new(&wxpay_config()).unwrap();
    let alipay = AlipayAccount::try_new(&alipay_config()).unwrap();
    assert_eq!(wxpay().platform_key_ids(), [&CERTIFICATE_SERIAL[1..], PUBLIC_KEY_ID]);
    let ours = OurAccounts::try_new(vec![wxpay()], vec![alipay]).unwrap();
    let listed: Vec<String> = ours.list().iter().map(ToString::to_string).collect();
    assert_eq!(listed, ["wxpay:1900000001", "alipay:2088000000000002"]);
    for account in ours.list() {
        let receiver = ours.find_receiver(account.channel, account.account.as_str()).unwrap();
        assert_eq!(receiver.account(), &account);
        assert!(ours.contains(&account));
    }
    assert!(ours.find_receiver(Channel::Alipay, MCHID).is_none());
    assert!(!ours.contains(&AccountRef::parse("wxpay:1900000009").unwrap()));
    let twice = OurAccounts::try_new(vec![wxpay(), wxpay()], Vec::new()).unwrap_err();
    assert_eq!(twice[0].to_string(), "wxpay: mchid 1900000001 is there twice: remove one");
}
