// A test of jest, with the server of keepwatch/jest.
const { readFileSync } = require('node:fs');
const https = require('node:https');

test('the server answers', async () => {
  const text = readFileSync(process.env.KUBECONFIG, 'utf8');
  const field = (name) => new RegExp(`${name}: (.*)`).exec(text)[1];
  const options = {
    headers: { Authorization: `Bearer ${field('token')}` },
    ca: Buffer.from(field('certificate-authority-data'), 'base64'),
  };
  const status = await new Promise((resolve, reject) => {
    https
      .get(`${field('server')}/api/v1/namespaces/default`, options, (r) => resolve(r.resume().statusCode))
      .on('error', reject);
  });
  expect(status).toBe(200);
});
