package io.github.keepwatch;

/** The program cannot be started, or has ended with an error. The message is the program's last one. */
public final class KeepwatchException extends RuntimeException {
  private static final long serialVersionUID = 1;
  private final int code;

  KeepwatchException(String message, int code) {
    super(message);
    this.code = code;
  }

  KeepwatchException(String message, Throwable cause) {
    super(message, cause);
    this.code = -1;
  }

  /** Returns the exit code, 128 and more for a signal, or -1 if the program was not started. */
  public int code() {
    return code;
  }
}
