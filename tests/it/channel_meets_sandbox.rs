//! Our calls against the sandbox: two readings of the platforms' documents that share no code. What one signs the other must
//! verify, in both directions, and both must mean the same by it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_channel::alipay::{
    AlipayAccount, AlipayAccountConfig, AlipayApiCerts, AlipayAppApiConfig, AlipayAppConfig, AlipayKeyConfig, SignType,
};
use paidonce_channel::api::{
    ApiAnswer, ApiCall, ApiMoment, ApiResponse, Ask, LearnedKey, RefundNumbers, RefundOrder, Reply, ReplyState,
};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig, WxpayApiConfig};
use paidonce_channel::{Fact, OurAccounts, SecretText};
use paidonce_order::command::PaymentRef;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, CombineNo, OrderNo, RefundNo};
use paidonce_order::{Money, Timestamp};
use paidonce_sandbox::alipay::certificates::{AUTHORITY, AlipayCertificates, ROOT};
use paidonce_sandbox::certificate::{Certificate, Wording};
use paidonce_sandbox::keys::Key;
use paidonce_sandbox::moment::Moment;
use paidonce_sandbox::options::{APP_ID, APPID, MCHID, SELLER_ID, SP_MCHID, SUB_MCHID};
use paidonce_sandbox::{
    Advance, AlipayKeyMode, Api, Behaviour, Channel, ConsoleRefund, Delivery, FailKind, FailNext, KeyMode, OrderName,
    Part, Pay, PayCombined, Sandbox, SandboxOptions, SharePart, ShareResult, StartShare,
};
use paidonce_tests::wire::{Request, send};
use toml::Value;

/// A sandbox and the accounts of its own configuration.
struct World {
    sandbox: Sandbox,
    ours: OurAccounts,
    address: SocketAddr,
    seconds: u64,
    calls: u32,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new(behaviour: Behaviour) -> Self {
        let folder = folder_with_keys().await;
        let mut options = SandboxOptions::new(folder.path().to_owned(), "http://127.0.0.1:9".to_owned());
        options.behaviour = behaviour;
        options.delivery = Delivery::ByHand;
        let sandbox = Sandbox::start(options).await.unwrap();
        let address = sandbox.url().strip_prefix("http://").unwrap().parse().unwrap();
        let ours = accounts(&sandbox.accounts_toml().unwrap());
        Self { sandbox, ours, address, seconds: 0, calls: 0, _folder: folder }
    }

    fn now(&self) -> Timestamp {
        Timestamp::parse(&self.sandbox.now().rfc3339()).unwrap()
    }

    fn advance(&mut self, seconds: u64) {
        self.seconds += seconds;
        self.sandbox.advance(Advance { seconds, ledger_moves_too: true });
    }

    fn fail(&self, kind: FailKind) {
        let fail = FailNext { api: Api::Any, channel: None, kind, times: 1, executed: None };
        self.sandbox.play(|platforms, _| platforms.fail_next(fail));
    }

    fn pay(&self, channel: Channel, order_no: &str, minor: i64) {
        self.sandbox.play(|platforms, now| platforms.pay(&Pay::new(channel, order_no, minor), now)).unwrap();
    }

    fn open(&self, channel: Channel, order_no: &str, minor: i64) {
        self.sandbox.play(|platforms, now| platforms.open(&Pay::new(channel, order_no, minor), now)).unwrap();
    }

    /// Sends a call as any HTTP client would and reads the answer.
    async fn call(&mut self, account: &AccountRef, call: &ApiCall) -> ApiAnswer {
        let api = self.ours.find_api(account).unwrap();
        self.calls += 1;
        let moment = ApiMoment { now: self.now(), nonce: format!("{:032}", self.calls) };
        let request = api.request(call, &moment).unwrap();
        let path = request.url.strip_prefix(self.sandbox.url()).unwrap();
        let headers = request.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let sent = Request::new(request.method, path, request.body.clone()).headers(headers);
        let answer = send(self.address, &sent).await.unwrap();
        let headers: Vec<(String, Vec<u8>)> =
            answer.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        let response = ApiResponse { status: answer.status, headers: &headers, body: &answer.body, now: self.now() };
        api.read(call, response)
    }

    async fn ask(&mut self, account: &AccountRef, ask: Ask) -> ApiAnswer {
        let sub_mchid = (account.account.as_str() == SP_MCHID).then(|| SUB_MCHID.to_owned());
        self.call(account, &ApiCall { sub_mchid, ask }).await
    }

    async fn word(&mut self, account: &AccountRef, ask: Ask) -> String {
        word(&self.ask(account, ask).await)
    }
}

/// Making the keys costs seconds: they are made once and copied.
static KEYS: tokio::sync::OnceCell<PathBuf> = tokio::sync::OnceCell::const_new();

async fn folder_with_keys() -> tempfile::TempDir {
    let make = || async {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sandbox-keys");
        let options = SandboxOptions::new(dir.clone(), "http://127.0.0.1:9".to_owned());
        Sandbox::start(options).await.unwrap().stop().await;
        dir
    };
    let (keys, folder) = (KEYS.get_or_init(make).await, tempfile::tempdir().unwrap());
    for entry in std::fs::read_dir(keys).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// The accounts of a configuration that the sandbox wrote.
fn accounts(text: &str) -> OurAccounts {
    let config: toml::Table = text.parse().unwrap();
    let list = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
    let file = |value: &Value, key: &str| std::fs::read_to_string(text(value, key)).unwrap();
    let wxpay = config["wxpay"].as_array().unwrap().iter().map(|section| {
        let platform_key = |key: &Value| match key.get("certificate_file") {
            Some(_) => PlatformKeyConfig::Certificate { pem: file(key, "certificate_file") },
            None => PlatformKeyConfig::PublicKey { id: text(key, "public_key_id"), pem: file(key, "public_key_file") },
        };
        let mode = match section.get("partner") {
            Some(_) => MerchantMode::Partner { sub_mchids: vec![SUB_MCHID.to_owned()] },
            None => MerchantMode::Direct,
        };
        let api = WxpayApiConfig {
            api_url: text(section, "api_url"),
            merchant_serial: text(section, "merchant_serial"),
            merchant_private_key: SecretText::new(file(section, "merchant_private_key_file")),
        };
        let config = WxpayAccountConfig {
            mchid: text(section, "mchid"),
            appids: list(section, "appids").iter().map(|appid| appid.as_str().unwrap().to_owned()).collect(),
            mode,
            platform_keys: list(section, "platform_keys").iter().map(platform_key).collect(),
            apiv3_key: SecretText::new(text(section, "apiv3_key")),
            apiv3_key_previous: None,
            api: Some(api),
        };
        WxpayAccount::try_new(&config).unwrap()
    });
    let alipay = config["alipay"].as_array().unwrap().iter().map(|section| {
        let app = &list(section, "apps")[0];
        let private_key = SecretText::new(file(app, "app_private_key_file"));
        let (key, certs) = match app.get("alipay_cert_file") {
            Some(_) => {
                let certs = AlipayApiCerts {
                    app_cert: file(app, "app_cert_file"),
                    alipay_root_cert: file(app, "alipay_root_cert_file"),
                };
                (AlipayKeyConfig::Certificate(file(app, "alipay_cert_file")), Some(certs))
            }
            None => (AlipayKeyConfig::PublicKey(file(app, "alipay_public_key_file")), None),
        };
        let app = AlipayAppConfig {
            app_id: text(app, "app_id"),
            key,
            sign_type: SignType::Rsa2,
            auth_app_ids: Vec::new(),
            api: Some(AlipayAppApiConfig { private_key, certs, app_auth_token: None }),
        };
        assert_eq!(app.app_id, APP_ID);
        let config = AlipayAccountConfig {
            seller_id: text(section, "seller_id"),
            apps: vec![app],
            api_url: text(section, "api_url"),
        };
        AlipayAccount::try_new(&config).unwrap()
    });
    OurAccounts::try_new(wxpay.collect(), alipay.collect()).unwrap()
}

fn wxpay() -> AccountRef {
    AccountRef::parse(&format!("wxpay:{MCHID}")).unwrap()
}

fn partner() -> AccountRef {
    AccountRef::parse(&format!("wxpay:{SP_MCHID}")).unwrap()
}

fn alipay() -> AccountRef {
    AccountRef::parse(&format!("alipay:{SELLER_ID}")).unwrap()
}

fn order_no(text: &str) -> OrderNo {
    OrderNo::parse(text).unwrap()
}

fn payment(text: &str) -> Ask {
    Ask::Payment { order_no: order_no(text) }
}

fn close(text: &str) -> Ask {
    Ask::Close { order_no: order_no(text) }
}

fn word(answer: &ApiAnswer) -> String {
    match answer {
        ApiAnswer::Refused(refusal) => format!("refused {:?} {}", refusal.remedy, refusal.code),
        ApiAnswer::Unknown(doubt) => format!("unknown {}", doubt.code),
        ApiAnswer::Final(reply) => match &reply.state {
            ReplyState::Payment(state) => format!("{state:?}"),
            ReplyState::Combine(known) => {
                let parts = known.iter().flat_map(|known| &known.sub_orders);
                parts.map(|part| part.trade_state.as_str()).collect::<Vec<_>>().join(" ")
            }
            ReplyState::Refund(state) => format!("{state:?}"),
            ReplyState::Close(state) => format!("{state:?}"),
            ReplyState::Share(state) => format!("{state:?}"),
            ReplyState::Certificates(keys) => format!("{} keys", keys.len()),
        },
    }
}

fn reply(answer: ApiAnswer) -> Reply {
    match answer {
        ApiAnswer::Final(reply) => *reply,
        ApiAnswer::Refused(_) | ApiAnswer::Unknown(_) => panic!("{}", word(&answer)),
    }
}

fn facts(answer: ApiAnswer) -> Vec<Fact> {
    let notice = reply(answer).notice.into_inner();
    assert_eq!(notice.strays, [], "everything could be booked");
    notice.observations.into_iter().map(|observation| observation.fact).collect()
}

/// The payment that a paid order's answer names.
fn paid(answer: ApiAnswer) -> PaymentRef {
    let said = facts(answer);
    let [Fact::Payment(fact)] = said.as_slice() else { panic!("{said:?}") };
    fact.payment.clone()
}

fn numbers(payment: &PaymentRef, order: &str, refund_no: &str) -> RefundNumbers {
    RefundNumbers {
        payment: payment.clone(),
        order_no: order_no(order),
        refund_no: RefundNo::parse(refund_no).unwrap(),
    }
}

fn refund(payment: &PaymentRef, order: &str, (refund_no, minor): (&str, i64)) -> Ask {
    Ask::Refund(RefundOrder {
        numbers: numbers(payment, order, refund_no),
        amount: Money::fen(minor),
        payment_amount: Money::fen(1000),
        reason: Some("质量问题 / \"A&B\"".to_owned()),
    })
}

#[tokio::test]
async fn an_order_is_unknown_then_unpaid_then_paid_at_both_platforms() {
    let mut world = World::new(Behaviour::default()).await;
    for (account, channel) in [(wxpay(), Channel::Wxpay), (alipay(), Channel::Alipay)] {
        assert_eq!(world.word(&account, payment("ORDER0001")).await, "NotFound");
        world.open(channel, "ORDER0001", 1000);
        assert_eq!(world.word(&account, payment("ORDER0001")).await, "Unpaid");
        world.pay(channel, "ORDER0001", 1000);
        let named = paid(world.ask(&account, payment("ORDER0001")).await);
        assert_eq!(named.account, account);
        let by_trade_no = |number: &ChannelTradeNo| Ask::PaymentByTradeNo {
            order_no: order_no("ORDER0001"),
            channel_trade_no: number.clone(),
        };
        assert_eq!(world.word(&account, by_trade_no(&named.channel_trade_no)).await, "Paid");
        let other = ChannelTradeNo::parse("4200000000000000000000000000").unwrap();
        assert_eq!(world.word(&account, by_trade_no(&other)).await, "NotFound");
    }
}

#[tokio::test]
async fn a_close_closes_what_is_unpaid_and_never_what_is_paid() {
    let mut world = World::new(Behaviour::default()).await;
    for (account, channel) in [(wxpay(), Channel::Wxpay), (alipay(), Channel::Alipay)] {
        assert_eq!(world.word(&account, close("ORDER0404")).await, "NotFound");
        world.pay(channel, "ORDER0002", 1000);
        assert_eq!(world.word(&account, close("ORDER0002")).await, "MaybePaid");
        assert_eq!(world.word(&account, payment("ORDER0002")).await, "Paid");
    }
    world.open(Channel::Wxpay, "ORDER0001", 1000);
    for _ in 0..2 {
        assert_eq!(world.word(&wxpay(), close("ORDER0001")).await, "Closed");
    }
    let said = facts(world.ask(&wxpay(), payment("ORDER0001")).await);
    assert!(matches!(said.as_slice(), [Fact::AttemptClosed(_)]), "{said:?}");
}

#[tokio::test]
async fn a_refund_is_done_when_the_platform_says_so_and_its_number_is_used_once() {
    let mut world = World::new(Behaviour::default()).await;
    for (account, channel) in [(wxpay(), Channel::Wxpay), (alipay(), Channel::Alipay)] {
        world.pay(channel, "ORDER0001", 1000);
        let of = paid(world.ask(&account, payment("ORDER0001")).await);
        let state = || Ask::RefundState(numbers(&of, "ORDER0001", "RF1"));
        let asked = || refund(&of, "ORDER0001", ("RF1", 300));
        assert_eq!(world.word(&account, state()).await, "NotFound");
        // WeChat Pay accepts; Alipay moves the money at once, and a repeat moves none.
        let (first, again) =
            if channel == Channel::Wxpay { ("Processing", "Processing") } else { ("Succeeded", "Processing") };
        assert_eq!(world.word(&account, asked()).await, first);
        assert_eq!(world.word(&account, asked()).await, again);
        world.advance(61);
        let said = facts(world.ask(&account, state()).await);
        let [Fact::Refund(fact)] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!(fact.amount.stated(), Money::fen(300));
        assert_eq!(fact.refund_no.as_str(), "RF1");
        let too_much = refund(&of, "ORDER0001", ("RF2", 701));
        assert!(world.word(&account, too_much).await.starts_with("refused Person"));
        let rest = refund(&of, "ORDER0001", ("RF3", 700));
        assert_eq!(world.word(&account, rest).await, first);
        world.advance(61);
        let all_back = if channel == Channel::Wxpay { "PaidWithRefunds" } else { "Closed" };
        assert_eq!(world.word(&account, payment("ORDER0001")).await, all_back);
    }
}

#[tokio::test]
async fn a_number_that_another_order_used_is_told_as_taken() {
    let mut world = World::new(Behaviour::default()).await;
    world.pay(Channel::Wxpay, "ORDER0001", 1000);
    world.pay(Channel::Wxpay, "ORDER0002", 1000);
    let (first, second) =
        (paid(world.ask(&wxpay(), payment("ORDER0001")).await), paid(world.ask(&wxpay(), payment("ORDER0002")).await));
    assert_eq!(world.word(&wxpay(), refund(&first, "ORDER0001", ("RF1", 100))).await, "Processing");
    assert!(world.word(&wxpay(), refund(&second, "ORDER0002", ("RF1", 100))).await.starts_with("refused Person"));
    let told = world.ask(&wxpay(), Ask::RefundState(numbers(&second, "ORDER0002", "RF1"))).await;
    assert_eq!(word(&told), "Failed");
    let said = facts(told);
    let [Fact::Refund(fact)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(fact.payment, first);
}

#[tokio::test]
async fn a_partner_asks_with_both_numbers() {
    let mut world = World::new(Behaviour::default()).await;
    let mut wanted = Pay::new(Channel::Wxpay, "ORDER0001", 1000);
    wanted.name.account = Some(SP_MCHID.to_owned());
    world.sandbox.play(|platforms, now| platforms.pay(&wanted, now)).unwrap();
    let of = paid(world.ask(&partner(), payment("ORDER0001")).await);
    assert_eq!(of.account, partner());
    assert_eq!(world.word(&partner(), close("ORDER0001")).await, "MaybePaid");
    assert_eq!(world.word(&partner(), refund(&of, "ORDER0001", ("RF1", 300))).await, "Processing");
    world.advance(61);
    assert_eq!(world.word(&partner(), Ask::RefundState(numbers(&of, "ORDER0001", "RF1"))).await, "Succeeded");
    assert_eq!(world.word(&wxpay(), payment("ORDER0001")).await, "NotFound", "the direct merchant has no such order");
}

#[tokio::test]
async fn a_combined_payment_is_asked_by_its_own_number() {
    let mut world = World::new(Behaviour::default()).await;
    let part = |order_no: &str, amount_minor| Part { order_no: order_no.to_owned(), amount_minor };
    let wanted = PayCombined {
        combine_no: "COMBINE0001".to_owned(),
        account: None,
        orders: vec![part("ORDER0001", 10), part("ORDER0002", 990)],
        callback: paidonce_sandbox::Wish::AsUsual,
    };
    world.sandbox.play(|platforms, now| platforms.pay_combined(&wanted, now)).unwrap();
    assert_eq!(world.word(&wxpay(), payment("ORDER0001")).await, "NotFound", "the plain query does not know it");
    assert_eq!(facts(world.ask(&wxpay(), combine_payment()).await).len(), 2);
}

#[tokio::test]
async fn a_combined_payment_is_closed_as_a_whole_with_what_its_query_said() {
    let mut world = World::new(Behaviour::default()).await;
    let part = |order_no: &str| Part { order_no: order_no.to_owned(), amount_minor: 10 };
    let wanted = PayCombined {
        combine_no: "COMBINE0001".to_owned(),
        account: None,
        orders: vec![part("ORDER0001"), part("ORDER0002")],
        callback: paidonce_sandbox::Wish::AsUsual,
    };
    world.sandbox.play(|platforms, now| platforms.open_combined(&wanted, now)).unwrap();
    let state = reply(world.ask(&wxpay(), combine_payment()).await).state;
    let ReplyState::Combine(Some(known)) = state else { panic!("{state:?}") };
    let close = |known| Ask::CloseCombine { combine_out_trade_no: combine_no(), known };
    let mut half = known.clone();
    half.sub_orders.truncate(1);
    assert_eq!(world.word(&wxpay(), close(half)).await, "refused Person PARAM_ERROR", "a part is missing");
    assert_eq!(world.word(&wxpay(), combine_payment()).await, "NOTPAY NOTPAY");
    assert_eq!(world.word(&wxpay(), close(known)).await, "Closed");
    assert_eq!(world.word(&wxpay(), combine_payment()).await, "CLOSED CLOSED");
}

fn combine_no() -> CombineNo {
    CombineNo::parse("COMBINE0001").unwrap()
}

fn combine_payment() -> Ask {
    Ask::CombinePayment { combine_out_trade_no: combine_no() }
}

#[tokio::test]
async fn a_finished_share_says_who_got_money_and_who_did_not() {
    let mut world = World::new(Behaviour::default()).await;
    for (account, channel) in [(wxpay(), Channel::Wxpay), (alipay(), Channel::Alipay)] {
        world.pay(channel, "ORDER0001", 1000);
        world.advance(61);
        let of = paid(world.ask(&account, payment("ORDER0001")).await);
        let receiver = |account: &str, result| SharePart {
            kind: None,
            account: account.to_owned(),
            amount_minor: 100,
            result,
            fail_reason: (result == ShareResult::Closed).then(|| "NO_RELATION".to_owned()),
        };
        let share = StartShare {
            name: OrderName::new(channel, "ORDER0001"),
            out_order_no: "SHARE0001".to_owned(),
            receivers: vec![receiver("1900000201", ShareResult::Success), receiver("1900000202", ShareResult::Closed)],
        };
        world.sandbox.play(|platforms, now| platforms.start_share_of(&share, now)).unwrap();
        let ask = || Ask::Share {
            order_no: order_no("ORDER0001"),
            payment: of.clone(),
            out_order_no: "SHARE0001".to_owned(),
        };
        assert_eq!(world.word(&account, ask()).await, "Processing");
        world.advance(61);
        let answer = world.ask(&account, ask()).await;
        assert_eq!(word(&answer), "Finished");
        let said = facts(answer);
        assert!(matches!(said.as_slice(), [Fact::Share(_), Fact::Flag(_)]), "{said:?}");
    }
}

#[tokio::test]
async fn trouble_is_an_unknown_outcome_and_the_next_answer_is_believed_again() {
    let mut world = World::new(Behaviour::default()).await;
    for (account, channel) in [(wxpay(), Channel::Wxpay), (alipay(), Channel::Alipay)] {
        world.pay(channel, "ORDER0001", 1000);
        for (kind, expected) in [
            (FailKind::ServerError, "unknown server_error"),
            (FailKind::SystemError, "unknown server_error"),
            (FailKind::BadSignature, "unknown bad_signature"),
            (FailKind::Unsigned, "unknown unsigned"),
            (FailKind::Probe, if channel == Channel::Wxpay { "unknown probe" } else { "unknown bad_signature" }),
        ] {
            world.fail(kind);
            assert_eq!(world.word(&account, payment("ORDER0001")).await, expected, "{kind:?}");
            assert_eq!(world.word(&account, payment("ORDER0001")).await, "Paid");
        }
        world.fail(FailKind::RateLimit);
        assert!(world.word(&account, payment("ORDER0001")).await.starts_with("refused Wait"));
        let of = paid(world.ask(&account, payment("ORDER0001")).await);
        world.fail(FailKind::BalanceShort);
        assert_eq!(world.word(&account, refund(&of, "ORDER0001", ("RF1", 100))).await, "BalanceShort");
    }
}

#[tokio::test]
async fn a_new_certificate_is_learned_from_the_list_and_believed_afterwards() {
    let behaviour = Behaviour { wxpay_keys: KeyMode::Certificate, ..Behaviour::default() };
    let mut world = World::new(behaviour).await;
    world.pay(Channel::Wxpay, "ORDER0001", 1000);
    assert_eq!(world.word(&wxpay(), payment("ORDER0001")).await, "Paid");
    world.sandbox.rotate_certificate().unwrap();
    assert_eq!(world.word(&wxpay(), payment("ORDER0001")).await, "unknown unknown_serial");
    let call = ApiCall { sub_mchid: None, ask: Ask::Certificates };
    let ReplyState::Certificates(keys) = reply(world.call(&wxpay(), &call).await).state else { panic!() };
    assert!(keys.len() >= 2, "old and new overlap");
    world.ours = world.ours.with_learned_keys(&wxpay(), keys);
    assert_eq!(world.word(&wxpay(), payment("ORDER0001")).await, "Paid");
}

/// Both sides name the certificates of the other and sign with those keys.
#[tokio::test]
async fn in_certificate_mode_alipay_and_we_believe_each_other() {
    let mut world = World::new(Behaviour { alipay_keys: AlipayKeyMode::Certificate, ..Behaviour::default() }).await;
    world.pay(Channel::Alipay, "ORDER0001", 1000);
    let of = paid(world.ask(&alipay(), payment("ORDER0001")).await);
    assert_eq!(world.word(&alipay(), refund(&of, "ORDER0001", ("RF1", 100))).await, "Succeeded");
}

/// Fact B3: a new certificate is asked for by its number, and trusted because it leads to the root that we have.
#[tokio::test]
async fn a_new_certificate_of_alipay_is_trusted_by_its_chain() {
    let mut world = World::new(Behaviour { alipay_keys: AlipayKeyMode::Certificate, ..Behaviour::default() }).await;
    world.pay(Channel::Alipay, "ORDER0001", 1000);
    let cert_sn = world.sandbox.rotate_alipay_certificate().unwrap();
    assert_eq!(world.word(&alipay(), payment("ORDER0001")).await, "unknown unknown_serial");
    let download = Ask::AlipayCertificate { cert_sn: cert_sn.clone() };
    let ReplyState::Certificates(keys) = reply(world.ask(&alipay(), download.clone()).await).state else { panic!() };
    assert_eq!(keys.iter().map(|key| key.serial.as_str()).collect::<Vec<_>>(), [cert_sn.as_str()]);
    let before = world.ours.clone();
    world.ours = world.ours.with_learned_keys(&alipay(), keys.clone());
    assert_eq!(world.word(&alipay(), payment("ORDER0001")).await, "Paid");
    // Another sandbox's certificate has the same names, and leads to another root.
    world.ours = before;
    let now = world.sandbox.now();
    let stranger = AlipayCertificates::of(Key::generate().unwrap(), Key::generate().unwrap(), now).unwrap();
    let (forged, forged_sn) = stranger.newest().unwrap();
    let key = LearnedKey { serial: forged_sn, pem: stranger.file_of(forged), ..keys[0].clone() };
    world.ours = world.ours.with_learned_keys(&alipay(), vec![key]);
    assert_eq!(world.word(&alipay(), payment("ORDER0001")).await, "unknown unknown_serial");
}

/// P5: whatever the gateway hands out in place of the certificate that was asked for is not believed.
#[tokio::test]
async fn what_is_not_alipays_certificate_is_not_believed() {
    let behaviour = Behaviour { alipay_keys: AlipayKeyMode::Certificate, ..Behaviour::default() };
    let mut world = World::new(behaviour).await;
    let hour_ago = Moment::from_seconds(world.sandbox.now().seconds() - 3600);
    let long_ago = Moment::from_seconds(world.sandbox.now().seconds() - 6 * 365 * 24 * 3600);
    let cert_sn = world.sandbox.rotate_alipay_certificate().unwrap();
    let ask = || Ask::AlipayCertificate { cert_sn: cert_sn.clone() };
    assert_eq!(world.word(&alipay(), ask()).await, "1 keys");
    type Forge = fn(&mut AlipayCertificates, Moment, Moment);
    let forgeries: [(&str, Forge); 5] = [
        ("leads to another root", |chain, hour_ago, _| {
            *chain = AlipayCertificates::of(Key::generate().unwrap(), Key::generate().unwrap(), hour_ago).unwrap();
        }),
        ("is a merchant's", |chain, hour_ago, _| {
            let merchants = chain.of_app("2021000000000666", Key::generate().unwrap(), hour_ago).unwrap();
            chain.platform = vec![merchants];
        }),
        ("was issued by somebody who may issue none", |chain, hour_ago, _| {
            let poser = Wording { subject: AUTHORITY, authority: false };
            let root = Some((&chain.root, ROOT));
            chain.authority = Certificate::issue_under(poser, Key::generate().unwrap(), root, hour_ago).unwrap();
            chain.platform.clear();
            chain.add(Key::generate().unwrap(), hour_ago).unwrap();
        }),
        ("has expired", |chain, _, long_ago| {
            chain.platform.clear();
            chain.add(Key::generate().unwrap(), long_ago).unwrap();
        }),
        ("is another one", |chain, hour_ago, _| {
            chain.platform.clear();
            chain.add(Key::generate().unwrap(), hour_ago).unwrap();
        }),
    ];
    for (what, forge) in forgeries {
        let usual = world.sandbox.play(|platforms, _| platforms.ring.alipay_certificates.clone());
        world.sandbox.play(|platforms, _| forge(&mut platforms.ring.alipay_certificates, hour_ago, long_ago));
        let forged = world.sandbox.play(|platforms, _| {
            let chain = platforms.ring.alipay_certificates.clone();
            chain.newest().map(|(newest, _)| chain.file_of(newest)).unwrap()
        });
        world.sandbox.play(|platforms, _| platforms.ring.alipay_certificates = usual);
        let body = format!(
            r#"{{"alipay_open_app_alipaycert_download_response":{{"code":"10000","msg":"Success","alipay_cert_content":"{}"}}}}"#,
            BASE64.encode(forged)
        );
        let response = ApiResponse { status: 200, headers: &[], body: body.as_bytes(), now: world.now() };
        let call = ApiCall { sub_mchid: None, ask: ask() };
        let answer = world.ours.find_api(&alipay()).unwrap().read(&call, response);
        assert_eq!(word(&answer), "unknown bad_signature", "a certificate that {what}");
    }
}

#[tokio::test]
async fn a_refund_from_the_console_shows_as_a_state_and_not_as_an_amount() {
    let mut world = World::new(Behaviour::default()).await;
    for (account, channel, expected) in
        [(wxpay(), Channel::Wxpay, "PaidWithRefunds"), (alipay(), Channel::Alipay, "Paid")]
    {
        world.pay(channel, "ORDER0001", 1000);
        let name = OrderName::new(channel, "ORDER0001");
        let console = ConsoleRefund { name, amount_minor: Some(250), refund_no: None };
        world.sandbox.play(|platforms, now| platforms.console_refund(&console, now)).unwrap();
        world.advance(61);
        let answer = world.ask(&account, payment("ORDER0001")).await;
        assert_eq!(word(&answer), expected);
        let said = facts(answer);
        assert!(matches!(said.as_slice(), [Fact::Payment(_)]), "{said:?}");
    }
    assert_eq!(APPID, "wx0000000000000001");
}
