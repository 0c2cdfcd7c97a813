//! Named test keys: the platforms' private halves, so that the tests can sign as the platforms do, and the merchant's own,
//! with which the ledger signs its requests.

use std::sync::OnceLock;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A key pair of a platform (or of an attacker).
#[derive(Debug)]
pub struct TestKey {
    /// Name in the case scripts, for example `platform_cert_1`.
    pub name: &'static str,
    /// What `Wechatpay-Serial` carries: the certificate's serial or the public key's id.
    pub id: &'static str,
    /// PKCS#8 in PEM.
    pub private_pem: &'static str,
    /// SPKI in PEM.
    pub public_pem: &'static str,
    /// Self-signed certificate in PEM, for certificate mode.
    pub certificate_pem: Option<&'static str>,
    pair: RsaKeyPair,
}

impl TestKey {
    /// SHA256withRSA (PKCS#1 v1.5), standard base64.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> String {
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).expect("sign with a test key");
        STANDARD.encode(signature)
    }

    /// Whether this signature (standard base64) of these bytes is by this key.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else { return false };
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.pair.public_key().as_ref());
        public.verify(message, &signature).is_ok()
    }
}

/// The key of that name, or `None`.
#[must_use]
pub fn find_key(name: &str) -> Option<&'static TestKey> {
    all().iter().find(|key| key.name == name)
}

/// The key that `Wechatpay-Serial` names, or `None`.
#[must_use]
pub fn find_key_by_id(id: &str) -> Option<&'static TestKey> {
    all().iter().find(|key| key.id.eq_ignore_ascii_case(id))
}

/// The key of that name.
#[must_use]
pub fn key(name: &str) -> &'static TestKey {
    find_key(name).unwrap_or_else(|| panic!("no test key is called {name}"))
}

macro_rules! test_key {
    ($name:literal, $id:literal, $certificate:expr) => {
        TestKey {
            name: $name,
            id: $id,
            private_pem: include_str!(concat!("test-keys/", $name, ".key.pem")),
            public_pem: include_str!(concat!("test-keys/", $name, ".pub.pem")),
            certificate_pem: $certificate,
            pair: parse_pair(include_str!(concat!("test-keys/", $name, ".key.pem"))),
        }
    };
}

fn all() -> &'static [TestKey] {
    static KEYS: OnceLock<Vec<TestKey>> = OnceLock::new();
    KEYS.get_or_init(|| {
        vec![
            test_key!(
                "platform_cert_1",
                "5157F09EFDC096DE15EBE81A47057A7232F1B8E1",
                Some(include_str!("test-keys/platform_cert_1.cert.pem"))
            ),
            test_key!(
                "platform_cert_2",
                "3775B6A45ACD588826D15E583A95F5DD00000002",
                Some(include_str!("test-keys/platform_cert_2.cert.pem"))
            ),
            test_key!(
                "platform_cert_3",
                "0A5DFF7711C0FFEE001122334455667700000003",
                Some(include_str!("test-keys/platform_cert_3.cert.pem"))
            ),
            test_key!("wechat_public_key_1", "PUB_KEY_ID_0119000000012026011500000000000001", None),
            test_key!("attacker_key", "666666666666666666666666666666666666DEAD", None),
            test_key!("unknown_key", "PUB_KEY_ID_0119000000012026011500000000009999", None),
            test_key!("alipay_platform", "alipay", None),
            test_key!("merchant_api", "5E1F00D5CAFE00000000000000000000000000A1", None),
            test_key!("alipay_app", "alipay-app", None),
        ]
    })
}

fn parse_pair(pem: &str) -> RsaKeyPair {
    RsaKeyPair::from_pkcs8(&pem_to_der(pem)).expect("a test key is a PKCS#8 RSA key")
}

fn pem_to_der(pem: &str) -> Vec<u8> {
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(base64).expect("a test key is PEM")
}

/// The bare base64 of a PEM, as the Alipay console shows a key.
#[must_use]
pub fn bare_base64(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with("-----")).collect()
}
