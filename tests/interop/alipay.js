// Alipay notifications signed and checked by the code of npm alipay-sdk.
//
// Reads one JSON request a line, answers one JSON line:
//   {"do": "sign", "fields": {..}, "privateKey": pem}           -> {"sign": base64}
//   {"do": "check", "fields": {..}, "publicKey": bare base64}   -> {"accepted": true | false}
//   {"do": "exec", "method": .., "biz": {..}, "gateway": url, ..} -> the verified answer, or {"error": text}
'use strict';
const path = require('node:path');
const readline = require('node:readline');
const { createRequire } = require('node:module');

const load = createRequire(path.join(process.argv[2], 'package.json'));
const entry = load.resolve('alipay-sdk');
const { AlipaySdk } = load('alipay-sdk');
// The SDK's signer with SHA-256 and RSA: what it exports for OpenAPI v3 signs any text.
const { signatureV3 } = load(path.join(path.dirname(entry), 'util.js'));

function signedText(fields) {
  return Object.keys(fields)
    .filter(name => name !== 'sign' && name !== 'sign_type')
    .sort()
    .map(name => `${name}=${fields[name]}`)
    .join('&');
}

// With plain keys, or with certificates when there are some.
function known({ privateKey, publicKey, certificates, ...more }) {
  const theirs = certificates
    ? { appCertContent: certificates.app, alipayRootCertContent: certificates.root, alipayPublicCertContent: certificates.alipay }
    : { alipayPublicKey: publicKey };
  return new AlipaySdk({ privateKey, keyType: 'PKCS8', ...theirs, ...more });
}

async function exec({ appId, method, biz, gateway, ...keys }) {
  const sdk = known({ appId, gateway, ...keys });
  try {
    return await sdk.exec(method, { bizContent: biz }, { validateSign: true });
  } catch (error) {
    return { error: error.message };
  }
}

const actions = {
  exec,
  sign: ({ fields, privateKey }) => ({ sign: signatureV3(signedText(fields), privateKey) }),
  check: ({ fields, privateKey, publicKey, certificates }) => {
    const sdk = known({ appId: fields.app_id, privateKey, publicKey, certificates });
    return { accepted: sdk.checkNotifySignV2(fields) };
  },
};

readline.createInterface({ input: process.stdin }).on('line', async line => {
  const request = JSON.parse(line);
  const answer = await actions[request.do](request);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
});
