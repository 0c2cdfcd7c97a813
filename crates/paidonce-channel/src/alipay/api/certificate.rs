//! The answer to `alipay.open.app.alipaycert.download` (fact B3). Nobody knows yet the key that may have signed it: what it
//! hands out is trusted because it leads to the configured root.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_order::timestamp::Timestamp;

use super::codes;
use crate::alipay::account::AlipayApp;
use crate::answer::{doubt, object};
use crate::api::{ApiResponse, Doubt, LearnedKey};
use crate::json::{raw_members, text};
use crate::reading::cut;

/// Errors: no such answer, or a certificate that must not be trusted.
pub(super) fn read(
    app: &AlipayApp,
    wanted_sn: &str,
    response: ApiResponse<'_>,
    node: &str,
) -> Result<LearnedKey, Doubt> {
    let unreadable = |problem: String| doubt("unreadable", format!("{problem} (status {})", response.status));
    let members = raw_members(response.body).map_err(|problem| unreadable(problem.to_string()))?;
    let node = members.iter().find(|(key, _)| key == node).map(|(_, raw)| *raw);
    let content = object(node.ok_or_else(|| unreadable("the answer has no certificate".to_owned()))?.as_bytes())?;
    if !codes::is_success(&content) {
        let words = [text(&content, "code"), text(&content, "sub_code"), text(&content, "sub_msg")];
        let words: Vec<String> = words.into_iter().flatten().map(cut).collect();
        return Err(doubt("unsigned", format!("no certificate: {}", words.join(" "))));
    }
    let encoded = text(&content, "alipay_cert_content").unwrap_or_default();
    let pem = BASE64.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pem = pem.ok_or_else(|| unreadable("alipay_cert_content is not base64 of a text".to_owned()))?;
    learn(app, wanted_sn, pem, response.now)
}

fn learn(app: &AlipayApp, wanted_sn: &str, pem: String, now: Timestamp) -> Result<LearnedKey, Doubt> {
    let distrusted = |problem: String| doubt("bad_signature", format!("the certificate {wanted_sn} {problem}"));
    let Some(trust) = app.trust() else {
        return Err(distrusted("can't be checked: the app has no alipay_root_cert_file".to_owned()));
    };
    let certificate = trust.check(&pem, now).map_err(distrusted)?;
    if !certificate.cert_sn.eq_ignore_ascii_case(wanted_sn) {
        return Err(distrusted(format!("was asked for, the answer has {}", certificate.cert_sn)));
    }
    let (valid_from, valid_to) = (certificate.validity.from, certificate.validity.to);
    Ok(LearnedKey { serial: certificate.cert_sn, pem, valid_from, valid_to })
}
