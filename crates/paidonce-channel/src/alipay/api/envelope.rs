//! The signed node of an answer (fact B3).
//!
//! The signature covers the node's value exactly as it stands in the raw bytes, from its `{` to the matching `}`, so it is
//! cut out and never parsed and written again (gotcha 53). The scanner knows strings and escapes: braces and the word
//! "sign" inside of them mean nothing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::alipay::account::AlipayApp;
use crate::answer::doubt;
use crate::api::{ApiResponse, Doubt};
use crate::json::{raw_members, text_of};
use crate::keys::RsaPublicKey;
use crate::reading::cut;

/// Where the gateway puts an error that it finds before it looks at the method.
const ERROR_NODE: &str = "error_response";

/// A certificate's number: MD5 in hexadecimal digits.
const CERT_SN_CHARS: usize = 32;

/// The raw text of the node, verified.
pub(super) struct Opened<'r> {
    pub(super) node: &'r str,
    /// The certificate that the answer names, in certificate mode.
    pub(super) cert_sn: Option<String>,
}

/// `alipay.trade.query` -> `alipay_trade_query_response`.
pub(super) fn node_name(method: &str) -> String {
    format!("{}_response", method.replace('.', "_"))
}

/// Verifies the answer. Errors: why nobody knows what it means.
pub(super) fn open<'r>(app: &AlipayApp, method: &str, response: ApiResponse<'r>) -> Result<Opened<'r>, Doubt> {
    let unsigned = |problem: String| {
        let code = if response.status >= 500 { "server_error" } else { "unsigned" };
        doubt(code, format!("{problem} (status {})", response.status))
    };
    // HTML of a proxy, an empty body, another charset: nothing of it is signed (gotcha 54).
    let members = raw_members(response.body).map_err(|problem| unsigned(format!("no signed answer: {problem}")))?;
    let find = |wanted: &str| members.iter().find(|(key, _)| key == wanted).map(|(_, raw)| *raw);
    let expected = node_name(method);
    let node = find(&expected).or_else(|| find(ERROR_NODE));
    let node = node.ok_or_else(|| unsigned(format!("the answer has no {expected}")))?;
    let Some(sign) = find("sign").and_then(text_of) else {
        return Err(unsigned(format!("the answer has no sign; unverified: {}", cut(node))));
    };
    let cert_sn = find("alipay_cert_sn").and_then(text_of).map(|sn| sn.to_ascii_lowercase());
    let key = key_of(app, cert_sn.as_deref(), response)?;
    let bad = |problem: &str| doubt("bad_signature", format!("{problem} (status {})", response.status));
    let signature = BASE64.decode(sign.as_bytes()).map_err(|_| bad("sign is not standard base64"))?;
    if !verifies(key, node, &signature) {
        return Err(bad("the sign does not verify with Alipay's key"));
    }
    if !node.starts_with('{') {
        return Err(doubt("unreadable", format!("{expected} is not an object: was encryption asked for?")));
    }
    Ok(Opened { node, cert_sn })
}

/// The certificate that an answer says it is signed with; nothing of it is verified.
pub(super) fn named_cert(response: ApiResponse<'_>) -> Option<String> {
    let members = raw_members(response.body).ok()?;
    let (_, raw) = members.iter().find(|(key, _)| key == "alipay_cert_sn")?;
    let cert_sn = text_of(raw)?.to_ascii_lowercase();
    let is_number = cert_sn.len() == CERT_SN_CHARS && cert_sn.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then_some(cert_sn)
}

/// Some gateways sign the text before its slashes are escaped (the official PHP SDK knows them): the same JSON.
fn verifies(key: &RsaPublicKey, node: &str, signature: &[u8]) -> bool {
    key.verifies(node.as_bytes(), signature)
        || (node.contains("\\/") && key.verifies(node.replace("\\/", "/").as_bytes(), signature))
}

/// In certificate mode the answer names the certificate that signed it, and no other is tried.
fn key_of<'a>(app: &'a AlipayApp, found: Option<&str>, response: ApiResponse<'_>) -> Result<&'a RsaPublicKey, Doubt> {
    let Some(configured) = &app.alipay_cert_sn else { return Ok(&app.key) };
    let found = found.unwrap_or_default();
    app.key_of_cert(found, response.now).ok_or_else(|| {
        let found = cut(found);
        let detail = format!(
            "alipay_cert_sn is {found:?}, the configured certificate has {configured}: if Alipay's new one can't be fetched, \
             download it from the console"
        );
        doubt("unknown_serial", detail)
    })
}
