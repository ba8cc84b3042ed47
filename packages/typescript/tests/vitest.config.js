export default {
  test: {
    globalSetup: ['keepwatch/vitest', './setup.js'],
    include: ['*.test.js'],
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
};
