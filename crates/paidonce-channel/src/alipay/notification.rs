//! A notification of Alipay: verify the form, see whose it is, read it.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;

use super::account::{AlipayAccount, AlipayApp};
use super::form::{Form, SignRule, Texts};
use super::value::beijing_time;
use super::{gateway, trade};
use crate::channel::{ChannelReceiver, RawNotification, VerifyError};
use crate::evidence::evidence;
use crate::observation::{Notice, Source, Verified};
use crate::reading::{Message, Said, Stop, Unbookable, cut, not_ours};

/// Receives the notifications of one seller_id.
#[derive(Debug, Clone)]
pub struct AlipayReceiver {
    account: Arc<AlipayAccount>,
}

impl AlipayReceiver {
    /// For this account.
    #[must_use]
    pub const fn new(account: Arc<AlipayAccount>) -> Self {
        Self { account }
    }

    /// Checks the signature with the key of the app that the form names. Gives that key's name. While Alipay changes its
    /// certificate, that key may be the configured one or one that Alipay handed out: a form does not say.
    ///
    /// A form that names no app, or none of ours, is checked with this account's keys, only to tell a stranger's message
    /// from a forgery: it is never booked.
    fn verify(&self, form: &Form, rule: SignRule, now: Timestamp) -> Result<String, VerifyError> {
        let sign = signature(form)?;
        let sign_type = form.ascii("sign_type").ok_or(VerifyError::Malformed { field: "sign_type", hint: "RSA2" })?;
        let named = form.ascii("app_id").and_then(|app_id| self.account.apps.get_key_value(app_id));
        let candidates: Vec<(&String, &AlipayApp)> = match named {
            Some(app) => vec![app],
            None => self.account.apps.iter().collect(),
        };
        if !candidates.iter().any(|(_, app)| app.sign_type.as_str() == sign_type) {
            let allowed = candidates.first().map_or("RSA2", |(_, app)| app.sign_type.as_str());
            return Err(VerifyError::AlgorithmNotAllowed { field: "sign_type", found: cut(sign_type), allowed });
        }
        let signed = form.signed_bytes(rule);
        let verifying =
            candidates.into_iter().filter(|(_, app)| app.sign_type.as_str() == sign_type).find_map(|(app_id, app)| {
                let (cert_sn, _) = app.keys(now).find(|(_, key)| key.verifies(&signed, &sign))?;
                Some(app.key_id(app_id, cert_sn))
            });
        match (verifying, named) {
            (Some(key_id), _) => Ok(key_id),
            (None, Some((app_id, _))) => Err(VerifyError::BadSignature { key_id: format!("{app_id}/{sign_type}") }),
            (None, None) => Err(VerifyError::BadSignature { key_id: format!("any app of {}", self.account.account) }),
        }
    }

    fn read(&self, texts: &Texts<'_>, rule: SignRule) -> Result<Vec<Said>, Stop> {
        let app_id = texts.get("app_id").ok_or_else(|| Unbookable::missing("app_id"))?;
        let app = self.account.apps.get(app_id.as_ref()).ok_or_else(|| not_ours("app_id", &app_id))?;
        // A third-party app may speak for a merchant's app only where the configuration says so.
        let speaks_for = texts.get("auth_app_id").filter(|auth| *auth != app_id);
        if let Some(stranger) = speaks_for.filter(|auth| !app.auth_app_ids.contains(auth.as_ref())) {
            return Err(not_ours("auth_app_id", &stranger));
        }
        match rule {
            SignRule::Gateway => gateway::read(texts, &self.account.account),
            SignRule::Notification => {
                self.check_seller(texts)?;
                if let Some(other) = texts.get("notify_type").filter(|kind| kind != "trade_status_sync") {
                    let detail = format!("notify_type {:?}", cut(&other));
                    return Err(Unbookable::new("unknown_type", detail).into());
                }
                Ok(trade::read(texts, &self.account.account, trade::Door::Notice)?)
            }
        }
    }

    fn check_seller(&self, texts: &Texts<'_>) -> Result<(), Stop> {
        let seller_id = texts.get("seller_id").ok_or_else(|| Unbookable::missing("seller_id"))?;
        if seller_id == self.account.account.account.as_str() { Ok(()) } else { Err(not_ours("seller_id", &seller_id)) }
    }
}

impl ChannelReceiver for AlipayReceiver {
    fn account(&self) -> &AccountRef {
        self.account.account()
    }

    fn receive(&self, raw: RawNotification<'_>) -> Result<Verified<Notice>, VerifyError> {
        let form = Form::parse(raw.body)?;
        // Presence decides the rule; trying both blindly would let a notification carry its sign_type into the string.
        let rule = if form.has("msg_method") { SignRule::Gateway } else { SignRule::Notification };
        let key_id = self.verify(&form, rule, raw.now)?;
        let event_type = form.ascii("msg_method").or_else(|| form.ascii("trade_status"));
        let message = Message {
            account: self.account.account(),
            push_id: form.ascii("notify_id").unwrap_or_default(),
            event_type,
            said_at: sent_at(&form),
            content: form.content(),
            evidence: evidence(self.account.account(), Source::Callback, Vec::new(), raw, key_id),
        };
        let said = form.texts().map_err(Stop::from).and_then(|texts| self.read(&texts, rule));
        match said {
            Ok(said) => Ok(Verified::new(message.into_notice(said))),
            Err(Stop::Unbookable(unbookable)) => {
                Ok(Verified::new(message.into_notice(vec![Said::Unbookable(unbookable)])))
            }
            Err(Stop::Refused(error)) => Err(error),
        }
    }
}

/// The signature bytes. A `+` that was sent bare arrives as a space: whoever sent it so has changed the form, and is asked to
/// send it again (Alipay escapes it as `%2B`).
fn signature(form: &Form) -> Result<Vec<u8>, VerifyError> {
    let malformed = VerifyError::Malformed { field: "sign", hint: "standard base64 with padding, + sent as %2B" };
    let sign = form.ascii("sign").ok_or_else(|| malformed.clone())?;
    BASE64.decode(sign).map_err(|_| malformed)
}

/// When Alipay sent it: `notify_time`, or the gateway's `utc_timestamp` in milliseconds.
fn sent_at(form: &Form) -> Option<Timestamp> {
    let notify_time = form.ascii("notify_time").and_then(|text| beijing_time("notify_time", text).ok());
    let from_millis = |text: &str| Some(Timestamp::from_micros(text.parse::<i64>().ok()?.checked_mul(1_000)?));
    notify_time.or_else(|| form.ascii("utc_timestamp").and_then(from_millis))
}
