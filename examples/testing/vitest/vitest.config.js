// A busy machine needs longer to start a server than vitest's 5 s for a test and 1 s for a poll.
export default { test: { testTimeout: 60_000, expect: { poll: { timeout: 60_000 } } } };
