//! The sandbox against our own channel code: two readings of the same documents that share no line must agree. Every call
//! that we can make is accepted, every answer and every callback is believed.

use std::collections::BTreeSet;

use paidonce_channel::alipay::{
    AlipayAccount, AlipayAccountConfig, AlipayAppApiConfig, AlipayAppConfig, AlipayKeyConfig, SignType,
};
use paidonce_channel::api::{
    ApiAnswer, ApiCall, ApiMoment, ApiResponse, Ask, CloseState, PaymentState, RefundNumbers, RefundOrder, RefundState,
    ReplyState, ShareState,
};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig, WxpayApiConfig};
use paidonce_channel::{Fact, OurAccounts, RawNotification, SecretText};
use paidonce_order::command::PaymentRef;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;
use paidonce_sandbox::options::{APP_ID, APPID, MCHID, PUBLIC_KEY_ID, SELLER_ID, SP_MCHID, SUB_MCHID};
use paidonce_sandbox::{
    Advance, Api, Channel, Charset, ConsoleRefund, Delivery, FailKind, FailNext, KeyMode, OrderName, Pay, Sandbox,
    SandboxOptions, SharePart, ShareResult, StartShare,
};

const PRICE: i64 = 8_888;

/// A sandbox, and the accounts of a ledger that knows its keys.
struct Both {
    sandbox: Sandbox,
    ours: OurAccounts,
    http: reqwest::Client,
    _dir: tempfile::TempDir,
}

impl Both {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = SandboxOptions::new(dir.path().to_owned(), "http://ledger".to_owned());
        options.delivery = Delivery::ByHand;
        let sandbox = Sandbox::start(options).await.unwrap();
        let ours = accounts(&sandbox);
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { sandbox, ours, http, _dir: dir }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.sandbox.now().micros())
    }

    /// One call as the ledger makes it.
    async fn ask(&self, account: &str, ask: Ask) -> ApiAnswer {
        let account = AccountRef::parse(account).unwrap();
        let api = self.ours.find_api(&account).expect("the account can ask");
        let sub_mchid = account.to_string().ends_with(SP_MCHID).then(|| SUB_MCHID.to_owned());
        let call = ApiCall { sub_mchid, ask };
        let nonce = paidonce_sandbox::keys::random_hex(16).unwrap();
        let request = api.request(&call, &ApiMoment { now: self.now(), nonce }).unwrap();
        let mut sent = self.http.request(request.method.parse().unwrap(), &request.url).body(request.body);
        for (name, value) in request.headers {
            sent = sent.header(name, value);
        }
        let answer = sent.send().await.unwrap();
        let status = answer.status().as_u16();
        let headers: Vec<(String, Vec<u8>)> =
            answer.headers().iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        let body = answer.bytes().await.unwrap();
        api.read(&call, ApiResponse { status, headers: &headers, body: &body, now: self.now() })
    }

    async fn state(&self, account: &str, ask: Ask) -> (ReplyState, usize) {
        match self.ask(account, ask.clone()).await {
            ApiAnswer::Final(reply) => (reply.state, reply.notice.get().observations.len()),
            other @ (ApiAnswer::Refused(_) | ApiAnswer::Unknown(_)) => panic!("{account} {ask:?}: {other:?}"),
        }
    }

    async fn payment(&self, account: &str, order_no: &str) -> (PaymentState, usize) {
        match self.state(account, Ask::Payment { order_no: OrderNo::parse(order_no).unwrap() }).await {
            (ReplyState::Payment(state), observations) => (state, observations),
            other => panic!("{other:?}"),
        }
    }

    async fn refund(&self, account: &str, ask: Ask) -> RefundState {
        match self.state(account, ask).await {
            (ReplyState::Refund(state), _) => state,
            other => panic!("{other:?}"),
        }
    }

    fn pay(&self, account: &str, order_no: &str) -> PaymentRef {
        let account = AccountRef::parse(account).unwrap();
        let paid = self.sandbox.play(|platforms, now| platforms.pay(&pay_of(&account, order_no), now)).unwrap();
        let channel_trade_no = ChannelTradeNo::parse(&paid.channel_trade_no.unwrap()).unwrap();
        PaymentRef { account, channel_trade_no }
    }

    /// Every callback that is due, verified and read; its facts.
    fn callbacks(&self) -> Vec<Fact> {
        let pushes = self.sandbox.play(|platforms, now| platforms.take_due(now));
        let mut facts = Vec::new();
        for push in pushes {
            let (channel, message) = match push.notice.account.channel {
                Channel::Wxpay => {
                    (paidonce_order::ids::Channel::Wxpay, paidonce_sandbox::wxpay::callback::write(&push))
                }
                Channel::Alipay => {
                    (paidonce_order::ids::Channel::Alipay, paidonce_sandbox::alipay::callback::write(&push))
                }
            };
            let message = message.unwrap();
            let headers: Vec<(String, Vec<u8>)> =
                message.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into_bytes())).collect();
            let receiver = self.ours.find_receiver(channel, &push.notice.account.id).unwrap();
            let raw = RawNotification { headers: &headers, body: &message.body, now: self.now() };
            let notice = receiver.receive(raw).unwrap_or_else(|error| panic!("{}: {error}", push.notice.what));
            facts.extend(notice.into_inner().observations.into_iter().map(|one| one.fact));
        }
        facts
    }
}

fn pay_of(account: &AccountRef, order_no: &str) -> Pay {
    let channel = match account.channel {
        paidonce_order::ids::Channel::Wxpay => Channel::Wxpay,
        paidonce_order::ids::Channel::Alipay => Channel::Alipay,
    };
    let mut pay = Pay::new(channel, order_no, PRICE);
    pay.name.account = Some(account.account.as_str().to_owned());
    pay
}

/// Read from the sandbox's own folder, as a merchant reads it from the platform's pages.
fn accounts(sandbox: &Sandbox) -> OurAccounts {
    let read = |name: String| std::fs::read_to_string(sandbox.dir().join(name)).unwrap();
    let config = sandbox.config_toml().unwrap();
    let config: toml::Table = config.parse().unwrap();
    let wxpay = config["wxpay"].as_array().unwrap().iter().map(|table| {
        let mchid = table["mchid"].as_str().unwrap();
        let mode = if mchid == SP_MCHID {
            MerchantMode::Partner { sub_mchids: vec![SUB_MCHID.to_owned()] }
        } else {
            MerchantMode::Direct
        };
        let config = WxpayAccountConfig {
            mchid: mchid.to_owned(),
            appids: vec![table["appids"][0].as_str().unwrap().to_owned()],
            mode,
            platform_keys: vec![
                PlatformKeyConfig::PublicKey { id: PUBLIC_KEY_ID.to_owned(), pem: read("wxpay-public.pem".to_owned()) },
                PlatformKeyConfig::Certificate { pem: read("wxpay-certificate.pem".to_owned()) },
            ],
            apiv3_key: SecretText::from(table["apiv3_key"].as_str().unwrap()),
            apiv3_key_previous: None,
            api: Some(WxpayApiConfig {
                api_url: table["api_url"].as_str().unwrap().to_owned(),
                merchant_serial: table["merchant_serial"].as_str().unwrap().to_owned(),
                merchant_private_key: SecretText::new(read(format!("merchant-{mchid}.pem"))),
            }),
        };
        WxpayAccount::try_new(&config).unwrap()
    });
    let alipay = AlipayAccountConfig {
        seller_id: SELLER_ID.to_owned(),
        apps: vec![AlipayAppConfig {
            app_id: APP_ID.to_owned(),
            key: AlipayKeyConfig::PublicKey(read("alipay-public.pem".to_owned())),
            sign_type: SignType::default(),
            auth_app_ids: Vec::new(),
            api: Some(AlipayAppApiConfig {
                private_key: SecretText::new(read(format!("app-{APP_ID}.pem"))),
                certs: None,
                app_auth_token: None,
            }),
        }],
        api_url: format!("{}/gateway.do", sandbox.url()),
    };
    assert!(config["wxpay"][0]["appids"][0].as_str() == Some(APPID));
    OurAccounts::try_new(wxpay.collect(), vec![AlipayAccount::try_new(&alipay).unwrap()]).unwrap()
}

fn refund_numbers(payment: &PaymentRef, order_no: &str, refund_no: &str) -> RefundNumbers {
    RefundNumbers {
        payment: payment.clone(),
        order_no: OrderNo::parse(order_no).unwrap(),
        refund_no: RefundNo::parse(refund_no).unwrap(),
    }
}

fn refund_order(numbers: &RefundNumbers, minor: i64) -> Ask {
    Ask::Refund(RefundOrder {
        numbers: numbers.clone(),
        amount: Money::fen(minor),
        payment_amount: Money::fen(PRICE),
        reason: Some("不想要了".to_owned()),
    })
}

const ACCOUNTS: [&str; 3] = ["wxpay:1900000001", "wxpay:1900000100", "alipay:2088000000000001"];

/// P3, P5: what the ledger asks is what the platforms accept, and their answers say the same to both sides.
#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_takes_our_queries_and_we_believe_its_answers() {
    let both = Both::start().await;
    for (account, order_no) in ACCOUNTS.into_iter().zip(["SANDBOX-1", "SANDBOX-2", "SANDBOX-3"]) {
        assert_eq!(both.payment(account, order_no).await, (PaymentState::NotFound, 0), "{account}");
        let open = pay_of(&AccountRef::parse(account).unwrap(), order_no);
        both.sandbox.play(|platforms, now| platforms.open(&open, now)).unwrap();
        assert_eq!(both.payment(account, order_no).await.0, PaymentState::Unpaid, "{account}");
        let payment = both.pay(account, order_no);
        assert_eq!(both.payment(account, order_no).await, (PaymentState::Paid, 1), "{account}");
        let by_trade_no = Ask::PaymentByTradeNo {
            order_no: OrderNo::parse(order_no).unwrap(),
            channel_trade_no: payment.channel_trade_no.clone(),
        };
        let (state, observations) = both.state(account, by_trade_no).await;
        assert!(matches!(state, ReplyState::Payment(PaymentState::Paid)) && observations == 1, "{account}: {state:?}");
        let facts = both.callbacks();
        assert!(matches!(facts.as_slice(), [Fact::Payment(_)]), "{account}: {facts:?}");
    }
    both.sandbox.stop().await;
}

/// P1: the same refund number moves money once on both sides.
#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_takes_our_refunds_and_we_believe_what_became_of_them() {
    let both = Both::start().await;
    for (account, order_no) in ACCOUNTS.into_iter().zip(["SANDBOX-1", "SANDBOX-2", "SANDBOX-3"]) {
        let payment = both.pay(account, order_no);
        both.callbacks();
        let numbers = refund_numbers(&payment, order_no, &format!("{order_no}-R1"));
        assert_eq!(both.refund(account, Ask::RefundState(numbers.clone())).await, RefundState::NotFound, "{account}");
        both.sandbox.play(|platforms, _| {
            platforms.fail_next(FailNext {
                api: Api::Refund,
                channel: None,
                kind: FailKind::BalanceShort,
                times: 1,
                executed: None,
            });
        });
        assert_eq!(both.refund(account, refund_order(&numbers, PRICE)).await, RefundState::BalanceShort, "{account}");
        for _ in 0..2 {
            let state = both.refund(account, refund_order(&numbers, PRICE)).await;
            assert!(matches!(state, RefundState::Processing | RefundState::Succeeded), "{account}: {state:?}");
        }
        both.sandbox.advance(Advance { seconds: 60, ledger_moves_too: true });
        assert_eq!(both.refund(account, Ask::RefundState(numbers)).await, RefundState::Succeeded, "{account}");
        let facts = both.callbacks();
        assert!(facts.iter().any(|fact| matches!(fact, Fact::Refund(_))), "{account}: {facts:?}");
        let state = both.sandbox.play(|platforms, now| platforms.state(Some(order_no), now));
        assert_eq!(state.orders[0].refunded_minor, PRICE, "{account}");
    }
    both.sandbox.stop().await;
}

/// A signed nothing is an answer; a paid order is not closed.
#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_closes_what_is_unpaid_and_says_so_of_what_is_not() {
    let both = Both::start().await;
    for (account, order_no) in ACCOUNTS.into_iter().zip(["SANDBOX-1", "SANDBOX-2", "SANDBOX-3"]) {
        let open = pay_of(&AccountRef::parse(account).unwrap(), order_no);
        let close = Ask::Close { order_no: OrderNo::parse(order_no).unwrap() };
        let (state, _) = both.state(account, close.clone()).await;
        assert!(matches!(state, ReplyState::Close(CloseState::NotFound)), "{account}: {state:?}");
        both.sandbox.play(|platforms, now| platforms.open(&open, now)).unwrap();
        let (state, _) = both.state(account, close.clone()).await;
        assert!(matches!(state, ReplyState::Close(CloseState::Closed)), "{account}: {state:?}");
        assert_eq!(both.payment(account, order_no).await.0, PaymentState::Closed, "{account}");
        both.sandbox.play(|platforms, now| platforms.pay_late(&open, now)).unwrap();
        let (state, _) = both.state(account, close).await;
        assert!(matches!(state, ReplyState::Close(CloseState::MaybePaid)), "{account}: {state:?}");
    }
    both.sandbox.stop().await;
}

/// FINISHED is not success: each receiver has its own result.
#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_answers_for_every_receiver_of_a_share() {
    let both = Both::start().await;
    for (account, order_no) in [(ACCOUNTS[0], "SANDBOX-1"), (ACCOUNTS[2], "SANDBOX-3")] {
        let payment = both.pay(account, order_no);
        both.callbacks();
        let name = pay_of(&AccountRef::parse(account).unwrap(), order_no).name;
        let part = |account: &str, result| SharePart {
            kind: None,
            account: account.to_owned(),
            amount_minor: 100,
            result,
            fail_reason: Some("NO_RELATION".to_owned()),
        };
        let receivers = vec![part("1900000777", ShareResult::Success), part("1900000778", ShareResult::Closed)];
        let share = StartShare { name, out_order_no: "SHARE-1".to_owned(), receivers };
        both.sandbox.play(|platforms, now| platforms.start_share_of(&share, now)).unwrap();
        let order_no = OrderNo::parse(order_no).unwrap();
        let ask = Ask::Share { payment, order_no, out_order_no: "SHARE-1".to_owned() };
        let (state, _) = both.state(account, ask.clone()).await;
        assert!(matches!(state, ReplyState::Share(ShareState::Processing)), "{account}: {state:?}");
        both.sandbox.advance(Advance { seconds: 10, ledger_moves_too: true });
        let (state, _) = both.state(account, ask).await;
        assert!(matches!(state, ReplyState::Share(ShareState::Finished)), "{account}: {state:?}");
        both.callbacks();
    }
    both.sandbox.stop().await;
}

/// Nothing that is not verified is a fact.
#[tokio::test(flavor = "multi_thread")]
async fn trouble_of_the_sandbox_is_unknown_or_refused_and_never_a_fact() {
    let both = Both::start().await;
    for account in [ACCOUNTS[0], ACCOUNTS[2]] {
        both.pay(account, "SANDBOX-1");
        for kind in
            [FailKind::ServerError, FailKind::SystemError, FailKind::BadSignature, FailKind::Unsigned, FailKind::Probe]
        {
            fail_query(&both, kind);
            let answer = both.ask(account, Ask::Payment { order_no: OrderNo::parse("SANDBOX-1").unwrap() }).await;
            assert!(matches!(answer, ApiAnswer::Unknown(_)), "{account} {kind:?}: {answer:?}");
        }
        fail_query(&both, FailKind::RateLimit);
        let answer = both.ask(account, Ask::Payment { order_no: OrderNo::parse("SANDBOX-1").unwrap() }).await;
        assert!(matches!(answer, ApiAnswer::Refused(_)), "{account}: {answer:?}");
    }
    both.sandbox.stop().await;
}

fn fail_query(both: &Both, kind: FailKind) {
    let fail = FailNext { api: Api::Query, channel: None, kind, times: 1, executed: None };
    both.sandbox.play(|platforms, _| platforms.fail_next(fail));
}

/// A new certificate signs, the ledger learns it from the list, and then believes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_learned_from_the_sandboxs_list() {
    let mut both = Both::start().await;
    both.sandbox.set_key_mode(KeyMode::Certificate);
    let serial = both.sandbox.rotate_certificate().unwrap();
    let (state, _) = both.state(ACCOUNTS[0], Ask::Certificates).await;
    let ReplyState::Certificates(keys) = state else { panic!("{state:?}") };
    assert!(keys.iter().any(|key| key.serial == serial), "{serial} is not in {keys:?}");
    both.ours = both.ours.with_learned_keys(&AccountRef::parse(ACCOUNTS[0]).unwrap(), keys);
    both.pay(ACCOUNTS[0], "SANDBOX-1");
    assert!(matches!(both.callbacks().as_slice(), [Fact::Payment(_)]));
    both.sandbox.stop().await;
}

/// Both ids live at once, and GBK notices are read.
#[tokio::test(flavor = "multi_thread")]
async fn callbacks_of_a_key_switch_and_in_gbk_are_believed() {
    let both = Both::start().await;
    both.sandbox.set_key_mode(KeyMode::Switching);
    let mut signed_by = BTreeSet::new();
    for number in 0..12 {
        both.pay(ACCOUNTS[0], &format!("SANDBOX-{number}"));
        let pushes = both.sandbox.play(|platforms, now| platforms.take_due(now));
        signed_by.extend(pushes.iter().map(|push| push.signer.id.clone()));
        for push in pushes {
            both.sandbox.play(|platforms, now| {
                platforms.pushed(&push, paidonce_sandbox::notice::Verdict::NotTaken, now);
            });
        }
        both.sandbox.advance(Advance { seconds: 15, ledger_moves_too: true });
        assert!(matches!(both.callbacks().as_slice(), [Fact::Payment(_)]));
    }
    assert_eq!(signed_by.len(), 2, "{signed_by:?}");
    let gbk = Pay { charset: Charset::Gbk, ..Pay::new(Channel::Alipay, "SANDBOX-GBK", PRICE) };
    both.sandbox.play(|platforms, now| platforms.pay(&gbk, now)).unwrap();
    assert!(matches!(both.callbacks().as_slice(), [Fact::Payment(_)]));
    let name = OrderName::new(Channel::Alipay, "SANDBOX-GBK");
    let refund = ConsoleRefund { name, amount_minor: Some(100), refund_no: None };
    both.sandbox.play(|platforms, now| platforms.console_refund(&refund, now)).unwrap();
    let facts = both.callbacks();
    assert!(facts.iter().any(|fact| matches!(fact, Fact::Refund(_))), "{facts:?}");
    both.sandbox.stop().await;
}

/// The account that a default sandbox is configured for is the direct merchant.
#[test]
fn the_accounts_of_a_default_sandbox_are_those_of_the_documents() {
    assert_eq!(ACCOUNTS, [format!("wxpay:{MCHID}"), format!("wxpay:{SP_MCHID}"), format!("alipay:{SELLER_ID}")]);
}
