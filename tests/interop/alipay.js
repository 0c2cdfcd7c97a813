// Alipay notifications signed and checked by the code of npm alipay-sdk.
//
// Reads one JSON request a line, answers one JSON line:
//   {"do": "sign", "fields": {..}, "privateKey": pem}           -> {"sign": base64}
//   {"do": "check", "fields": {..}, "publicKey": bare base64}   -> {"accepted": true | false}
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

const actions = {
  sign: ({ fields, privateKey }) => ({ sign: signatureV3(signedText(fields), privateKey) }),
  check: ({ fields, publicKey, privateKey }) => {
    const sdk = new AlipaySdk({ appId: fields.app_id, privateKey, keyType: 'PKCS8', alipayPublicKey: publicKey });
    return { accepted: sdk.checkNotifySignV2(fields) };
  },
};

readline.createInterface({ input: process.stdin }).on('line', line => {
  const request = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(actions[request.do](request))}\n`);
});
