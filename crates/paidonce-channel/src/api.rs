//! Asking a platform: what a call is, how it looks on the wire, and what an answer may mean. No IO here: a client of the
//! worker sends the request and brings the response back.
//!
//! | class | meaning | what the caller does |
//! |---|---|---|
//! | [`ApiAnswer::Refused`] | verified, and nothing happened at the platform | waits or tells a person, then the same call again |
//! | [`ApiAnswer::Final`] | verified, and it says how things stand | records its notice, acts on its state |
//! | [`ApiAnswer::Unknown`] | anything else: timeout, 5xx, no or a bad signature, `20000`, `SYSTEM_ERROR` | asks with the same number before anything else; never a fact |

use std::fmt;

use paidonce_order::command::PaymentRef;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, CombineNo, OrderNo, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;

use crate::observation::{Notice, Verified};

/// One question or wish to a platform about one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiCall {
    /// Whose order, at WeChat Pay under a service provider: without it such a call can't be made.
    pub sub_mchid: Option<String>,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// How does the payment of this order stand? By our number: the only one an unpaid order has.
    Payment {
        /// out_trade_no.
        order_no: OrderNo,
    },
    /// The same, by the channel's number.
    PaymentByTradeNo {
        /// Ours, to compare with the answer.
        order_no: OrderNo,
        /// transaction_id, trade_no.
        channel_trade_no: ChannelTradeNo,
    },
    /// All sub-orders of a WeChat Pay combine payment. Alipay has none: [`ApiAnswer::Refused`] without a call.
    CombinePayment {
        /// combine_out_trade_no.
        combine_out_trade_no: CombineNo,
    },
    /// Close an unpaid WeChat Pay combine payment as a whole; the query of it names its parts. Alipay has none.
    CloseCombine {
        /// combine_out_trade_no.
        combine_out_trade_no: CombineNo,
        /// What the platform said of it.
        known: KnownCombine,
    },
    /// What became of this refund?
    RefundState(RefundNumbers),
    /// Refund. Repeating it with the same number and amount moves money once.
    Refund(RefundOrder),
    /// Close the unpaid order: repeating is fine.
    Close {
        /// out_trade_no.
        order_no: OrderNo,
    },
    /// What became of each receiver of a profit share that the merchant started?
    Share {
        /// Ours: where a share that failed is shown. The platform's answer has no order number.
        order_no: OrderNo,
        /// Whose money is shared.
        payment: PaymentRef,
        /// out_order_no, out_request_no.
        out_order_no: String,
    },
    /// Which platform certificates are in force? WeChat Pay only.
    Certificates,
    /// The certificate with this `alipay_cert_sn`. Alipay only.
    AlipayCertificate {
        /// As an answer named it.
        cert_sn: String,
    },
}

/// Names a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundNumbers {
    /// The payment it belongs to.
    pub payment: PaymentRef,
    /// out_trade_no of that payment.
    pub order_no: OrderNo,
    /// out_refund_no, out_request_no.
    pub refund_no: RefundNo,
}

/// A refund to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundOrder {
    /// Which.
    pub numbers: RefundNumbers,
    /// How much goes back.
    pub amount: Money,
    /// The whole payment (WeChat amount.total).
    pub payment_amount: Money,
    /// For the payer.
    pub reason: Option<String>,
}

/// A request ready to be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiRequest {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// Whole address: the account's base URL with the path and query exactly as signed.
    pub url: String,
    /// In order.
    pub headers: Vec<(&'static str, String)>,
    /// Empty for GET.
    pub body: Vec<u8>,
}

/// Signatures are not for logs.
impl fmt::Debug for ApiRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiRequest({} {})", self.method, self.url.split('?').next().unwrap_or_default())
    }
}

/// What came back.
#[derive(Debug, Clone, Copy)]
pub struct ApiResponse<'a> {
    /// HTTP status.
    pub status: u16,
    /// As received.
    pub headers: &'a [(String, Vec<u8>)],
    /// Exact bytes.
    pub body: &'a [u8],
    /// When it was received, by our clock.
    pub now: Timestamp,
}

/// Values that a request needs and the pure part must not make itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiMoment {
    /// Our clock.
    pub now: Timestamp,
    /// 32 random letters and digits.
    pub nonce: String,
}

/// The calls of one account.
pub trait ChannelApi: Send + Sync {
    /// `wxpay:1900000001`.
    fn account(&self) -> &AccountRef;

    /// The signed request for a call. Errors: the call can't be made with this account's configuration; says what to add.
    fn request(&self, call: &ApiCall, moment: &ApiMoment) -> Result<ApiRequest, CallProblem>;

    /// What the response means. Guarantees: never panics; only a response whose signature verifies is anything but
    /// [`ApiAnswer::Unknown`].
    fn read(&self, call: &ApiCall, response: ApiResponse<'_>) -> ApiAnswer;

    /// What to ask for the key of a response that was signed with an unknown one. `None`: nothing to ask for.
    fn key_question(&self, response: ApiResponse<'_>) -> Option<Ask>;
}

/// The call can't be made: the account lacks something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct CallProblem {
    /// Configuration field or call field.
    pub field: &'static str,
    /// What to do.
    pub problem: String,
}

/// What an answer may mean: the three classes.
#[derive(Debug, Clone)]
pub enum ApiAnswer {
    /// Verified: the platform did nothing.
    Refused(Refusal),
    /// Verified: how things stand.
    Final(Box<Reply>),
    /// Nobody knows whether anything happened.
    Unknown(Doubt),
}

/// A verified refusal without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The platform's own code (`FREQUENCY_LIMITED`, `ACQ.INVALID_PARAMETER`), or ours when no call was made.
    pub code: String,
    /// The platform's own words, cut.
    pub detail: String,
    /// What helps.
    pub remedy: Remedy,
}

/// What helps after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Time: too many calls, or busy. Back off, then the same call.
    Wait,
    /// A person: rights, parameters, configuration.
    Person,
}

/// Why the outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// Stable word: `timeout`, `no_connection`, `server_error`, `bad_signature`, `unsigned`, `probe`, `unreadable`,
    /// `unknown_serial`, `not_ours`, `unknown_code`.
    pub code: &'static str,
    /// One sentence with the platform's code where there is one.
    pub detail: String,
}

/// A final answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// How things stand.
    pub state: ReplyState,
    /// What it says as facts, with the answer as evidence; for the one door (`App::record`). May hold no observation
    /// (nothing paid, not found).
    pub notice: Verified<Notice>,
    /// The platform's own word for the state (`SUCCESS`, `TRADE_CLOSED`, `ACQ.TRADE_NOT_EXIST`, ...), for people.
    pub platform_state: String,
}

/// How things stand, by the kind of the call.
#[derive(Debug, Clone)]
pub enum ReplyState {
    /// Of a payment.
    Payment(PaymentState),
    /// Of a refund.
    Refund(RefundState),
    /// Of a combine payment; `None` when the platform has no such payment (yet).
    Combine(Option<KnownCombine>),
    /// Of a close.
    Close(CloseState),
    /// Of a profit share.
    Share(ShareState),
    /// The certificate list: keys that may be trusted from now on.
    Certificates(Vec<LearnedKey>),
}

/// Of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentState {
    /// Money came in; no refund is known of.
    Paid,
    /// Money came in, and at least one refund was asked for: how much went back, only refund queries say. Alipay's
    /// query does not tell this state from [`Self::Paid`].
    PaidWithRefunds,
    /// Known, not paid (yet).
    Unpaid,
    /// Closed at the platform. For Alipay: unpaid, or paid and fully refunded when `send_pay_date` is there.
    Closed,
    /// The platform has no such order (yet): pending, never failed.
    NotFound,
}

/// A combine payment, as the platform knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCombine {
    /// combine_appid: a close must repeat it.
    pub combine_appid: String,
    /// Its parts; also those that are not ours.
    pub sub_orders: Vec<SubOrder>,
}

/// One part of a combine payment: it stands for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubOrder {
    /// mchid.
    pub mchid: String,
    /// sub_mchid, under a service provider.
    pub sub_mchid: Option<String>,
    /// out_trade_no.
    pub out_trade_no: String,
    /// How it stands; `None` for a part that is not ours.
    pub state: Option<PaymentState>,
    /// The platform's own word for it.
    pub trade_state: String,
}

/// Of a refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefundState {
    /// Money went back (final); an observation says so.
    Succeeded,
    /// Will never happen (final); an observation says so.
    Failed,
    /// Stuck at the platform, may still succeed; an observation says so.
    Stalled,
    /// Our balance is short: the same number again after a top-up. An observation says stalled.
    BalanceShort,
    /// Accepted, not done.
    Processing,
    /// The platform has no such refund: the same number may be sent (again).
    NotFound,
}

/// Of a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseState {
    /// Closed.
    Closed,
    /// Not closed since it is paid, or not in a state to be closed: query, then book.
    MaybePaid,
    /// The platform has no such order (yet): it can still be paid later.
    NotFound,
}

/// Of a profit share. Receivers that are final are observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareState {
    /// At least one receiver is not final.
    Processing,
    /// Every receiver is final, each with its own result.
    Finished,
    /// The platform has no such share (yet).
    NotFound,
}

/// A platform key that the platform itself told us: WeChat Pay sealed it with our APIv3 key, Alipay's certificate leads to
/// our copy of its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedKey {
    /// Serial number, normal form; of Alipay its `alipay_cert_sn`.
    pub serial: String,
    /// PEM certificate; of Alipay with those that it leads through.
    pub pem: String,
    /// effective_time, notBefore.
    pub valid_from: Timestamp,
    /// expire_time, notAfter.
    pub valid_to: Timestamp,
}
