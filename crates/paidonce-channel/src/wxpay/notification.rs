//! A notification of WeChat Pay: verify the bytes, open the resource, read it.

use std::sync::Arc;

use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;

use super::account::WxpayAccount;
use super::envelope::Envelope;
use super::headers::SignatureHeaders;
use super::{combine, payment, refund, share};
use crate::accounts::OurAccounts;
use crate::channel::{ChannelReceiver, RawNotification, VerifyError};
use crate::digest::digest_of;
use crate::evidence::evidence;
use crate::json::{Object, parse_object};
use crate::observation::{Notice, Source, Verified};
use crate::reading::{Message, Said, Stop, Unbookable, cut};

/// Receives the notifications of one mchid.
#[derive(Debug, Clone)]
pub struct WxpayReceiver {
    account: Arc<WxpayAccount>,
    ours: OurAccounts,
}

impl WxpayReceiver {
    /// `ours` names the accounts that a combine payment may touch beside `account`.
    #[must_use]
    pub const fn new(account: Arc<WxpayAccount>, ours: OurAccounts) -> Self {
        Self { account, ours }
    }

    fn read(&self, envelope: &Envelope<'_>, plaintext: &Object<'_>, said_at: Timestamp) -> Result<Vec<Said>, Stop> {
        let event_type = envelope.event_type().unwrap_or_default();
        match kind(envelope.original_type(), plaintext) {
            Kind::Payment => {
                let account = self.account.as_ref();
                let context = payment::Context { account, ours: &self.ours, event_type, said_at };
                if plaintext.contains_key("sub_orders") || plaintext.contains_key("combine_out_trade_no") {
                    combine::read(plaintext, &context)
                } else {
                    payment::read_single(plaintext, &context)
                }
            }
            Kind::Refund => refund::read(plaintext, &self.account, said_at),
            Kind::Share => {
                let (account, summary) = (self.account.as_ref(), envelope.summary());
                share::read(plaintext, &share::Context { account, ours: &self.ours, event_type, summary })
            }
            Kind::Unknown => {
                let original_type = envelope.original_type().unwrap_or_default();
                let detail = format!("event_type {:?}, original_type {:?}", cut(event_type), cut(original_type));
                Err(Unbookable::new("unknown_type", detail).into())
            }
        }
    }
}

impl ChannelReceiver for WxpayReceiver {
    fn account(&self) -> &AccountRef {
        self.account.account()
    }

    fn receive(&self, raw: RawNotification<'_>) -> Result<Verified<Notice>, VerifyError> {
        let headers = SignatureHeaders::read(raw.headers)?;
        let key_id = headers.verify(&self.account, raw.body, raw.now)?;
        let envelope = Envelope::read(raw.body)?;
        let opened = envelope.open(&self.account);
        let what = opened.as_deref().unwrap_or_default();
        let event_type = envelope.event_type();
        let message = Message {
            account: self.account.account(),
            push_id: envelope.push_id(),
            event_type,
            said_at: envelope.create_time(),
            content: content(&envelope, what),
            evidence: evidence(self.account.account(), Source::Callback, headers.evidence(), raw, key_id),
        };
        let plaintext = match &opened {
            Ok(plaintext) => plaintext,
            Err(sealed) => {
                return Ok(Verified::new(message.into_refused_notice(sealed.why, sealed.detail.clone())));
            }
        };
        let unreadable = |problem| VerifyError::Unreadable { problem: format!("resource: {problem}") };
        let plaintext = parse_object(plaintext).map_err(unreadable)?;
        let said_at = message.said_at.unwrap_or(raw.now);
        let said = match self.read(&envelope, &plaintext, said_at) {
            Ok(said) => said,
            Err(Stop::Unbookable(unbookable)) => vec![Said::Unbookable(unbookable)],
            Err(Stop::Refused(error)) => return Err(error),
        };
        Ok(Verified::new(message.into_notice(said)))
    }
}

/// What a plaintext is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Payment,
    Refund,
    Share,
    Unknown,
}

/// The signed `original_type` decides, the shape where there is none; the event type never does (a share was announced as
/// `TRANSACTION.SUCCESS`).
fn kind(original_type: Option<&str>, plaintext: &Object<'_>) -> Kind {
    let has = |key: &str| plaintext.contains_key(key);
    match original_type {
        Some("transaction") => Kind::Payment,
        Some("refund") => Kind::Refund,
        Some("profitsharing") => Kind::Share,
        Some(_) => Kind::Unknown,
        None if has("refund_status") || has("out_refund_no") => Kind::Refund,
        None if has("receiver") || has("receivers") => Kind::Share,
        None if has("sub_orders") || has("trade_state") => Kind::Payment,
        None => Kind::Unknown,
    }
}

/// What it says, without the nonce and times of sending: every resend of it gives the same digest.
fn content(envelope: &Envelope<'_>, plaintext: &[u8]) -> paidonce_order::ids::Digest {
    let texts = [envelope.event_type().unwrap_or_default(), envelope.original_type().unwrap_or_default()];
    crate::digest::PartsDigest::new("wxpay").with(&digest_of("type", &texts).0).with(plaintext).finish()
}
