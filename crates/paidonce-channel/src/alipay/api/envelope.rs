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
use crate::reading::cut;

/// Where the gateway puts an error that it finds before it looks at the method.
const ERROR_NODE: &str = "error_response";

/// The raw text of the node, verified. Errors: why nobody knows what the answer means.
pub(super) fn open<'r>(app: &AlipayApp, method: &str, response: ApiResponse<'r>) -> Result<&'r str, Doubt> {
    let unsigned = |problem: String| {
        let code = if response.status >= 500 { "server_error" } else { "unsigned" };
        doubt(code, format!("{problem} (status {})", response.status))
    };
    // HTML of a proxy, an empty body, another charset: nothing of it is signed (gotcha 54).
    let members = raw_members(response.body).map_err(|problem| unsigned(format!("no signed answer: {problem}")))?;
    let find = |wanted: &str| members.iter().find(|(key, _)| key == wanted).map(|(_, raw)| *raw);
    let expected = format!("{}_response", method.replace('.', "_"));
    let node = find(&expected).or_else(|| find(ERROR_NODE));
    let node = node.ok_or_else(|| unsigned(format!("the answer has no {expected}")))?;
    let Some(sign) = find("sign").and_then(text_of) else {
        return Err(unsigned(format!("the answer has no sign; unverified: {}", cut(node))));
    };
    check_cert_sn(app, find("alipay_cert_sn"))?;
    let bad = |problem: &str| doubt("bad_signature", format!("{problem} (status {})", response.status));
    let signature = BASE64.decode(sign.as_bytes()).map_err(|_| bad("sign is not standard base64"))?;
    if !verifies(app, node, &signature) {
        return Err(bad("the sign does not verify with Alipay's key"));
    }
    if !node.starts_with('{') {
        return Err(doubt("unreadable", format!("{expected} is not an object: was encryption asked for?")));
    }
    Ok(node)
}

/// Some gateways sign the text before its slashes are escaped (the official PHP SDK knows them): the same JSON.
fn verifies(app: &AlipayApp, node: &str, signature: &[u8]) -> bool {
    app.key.verifies(node.as_bytes(), signature)
        || (node.contains("\\/") && app.key.verifies(node.replace("\\/", "/").as_bytes(), signature))
}

/// In certificate mode the answer names the certificate that signed it. Another one than the configured is not tried.
fn check_cert_sn(app: &AlipayApp, found: Option<&str>) -> Result<(), Doubt> {
    let Some(expected) = &app.alipay_cert_sn else { return Ok(()) };
    let found = found.and_then(text_of).unwrap_or_default();
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let found = cut(&found);
    Err(doubt(
        "unknown_serial",
        format!(
            "alipay_cert_sn is {found:?}, the configured certificate has {expected}: download the new one from the console"
        ),
    ))
}
