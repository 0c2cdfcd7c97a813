//! Signs and writes Alipay's answers: the signature covers the exact text of the node.

use super::Answer;
use crate::failures::FailKind;
use crate::keys::KeyError;
use crate::order::Charset;
use crate::wire::Reply;

/// The bytes of a text in a charset.
#[must_use]
pub fn encode(text: &str, charset: Charset) -> Vec<u8> {
    match charset {
        Charset::Utf8 => text.as_bytes().to_vec(),
        Charset::Gbk => encoding_rs::GBK.encode(text).0.into_owned(),
    }
}

/// The answer as it goes out, with what befalls it. Errors: the key can't sign.
pub fn write(answer: &Answer) -> Result<Reply, KeyError> {
    match answer.trouble {
        Some(FailKind::Timeout) => return Ok(Reply::never()),
        Some(FailKind::Disconnect) => return Ok(Reply::broken()),
        Some(FailKind::ServerError) => return Ok(Reply::bad_gateway()),
        _ => {}
    }
    let node = answer.node.to_string();
    let signed = encode(&node, answer.charset);
    let sign = match (&answer.signer, answer.trouble) {
        (None, _) | (_, Some(FailKind::Unsigned)) => None,
        // A real signature, of something else.
        (Some(signer), Some(FailKind::BadSignature | FailKind::Probe)) => Some((signer, signer.key.sign(b"{}")?)),
        (Some(signer), _) => Some((signer, signer.key.sign(&signed)?)),
    };
    let sign = sign.map_or(String::new(), |(signer, sign)| match signer.id.as_str() {
        "" => format!(r#","sign":"{sign}""#),
        cert_sn => format!(r#","alipay_cert_sn":"{cert_sn}","sign":"{sign}""#),
    });
    let body = format!(r#"{{"{}":{node}{sign}}}"#, answer.node_name);
    let media_type = match answer.charset {
        Charset::Utf8 => "text/html;charset=utf-8",
        Charset::Gbk => "text/html;charset=GBK",
    };
    Ok(Reply::of(200, media_type, encode(&body, answer.charset)))
}
