//! Signs and writes WeChat Pay's answers.

use super::{Answer, Content};
use crate::failures::FailKind;
use crate::keys::{KeyError, random_hex};
use crate::wire::Reply;

/// The answer as it goes out, with what befalls it. Errors: a key can't sign.
pub fn write(answer: Answer) -> Result<Reply, KeyError> {
    let Answer { status, content, signer, trouble, at } = answer;
    match trouble {
        Some(FailKind::Timeout) => return Ok(Reply::never()),
        Some(FailKind::Disconnect) => return Ok(Reply::broken()),
        Some(FailKind::ServerError) => return Ok(Reply::bad_gateway()),
        _ => {}
    }
    let body = match content {
        Content::File(bytes) => return Ok(Reply::of(status, "text/plain", bytes)),
        Content::Nothing => Vec::new(),
        Content::Json(value) => value.to_string().into_bytes(),
    };
    let mut reply = Reply::of(status, "application/json; charset=utf-8", body);
    // Ends in a numeric code, as the platform's does.
    reply.header("Request-ID", format!("{}-268578704", random_hex(14)?));
    if trouble == Some(FailKind::Unsigned) {
        return Ok(reply);
    }
    let (timestamp, nonce) = (at.seconds().to_string(), random_hex(16)?);
    let mut message = format!("{timestamp}\n{nonce}\n").into_bytes();
    message.extend_from_slice(reply.body());
    message.push(b'\n');
    let signature = match trouble {
        // A real signature, of something else.
        Some(FailKind::BadSignature) => signer.key.sign(nonce.as_bytes())?,
        Some(FailKind::Probe) => format!("WECHATPAY/SIGNTEST/{}", random_hex(128)?),
        _ => signer.key.sign(&message)?,
    };
    reply.header("Wechatpay-Timestamp", timestamp);
    reply.header("Wechatpay-Nonce", nonce);
    reply.header("Wechatpay-Signature", signature);
    reply.header("Wechatpay-Signature-Type", "WECHATPAY2-SHA256-RSA2048".to_owned());
    reply.header("Wechatpay-Serial", signer.id);
    Ok(reply)
}
