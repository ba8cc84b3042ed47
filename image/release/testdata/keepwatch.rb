class Keepwatch < Formula
  desc "Follow Kubernetes without losing deletions"
  homepage "https://github.com/keepwatch/keepwatch"
  version "0.1.0-rc.1"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/keepwatch/keepwatch/releases/download/v0.1.0-rc.1/keepwatch-darwin-arm64.tar.gz"
      sha256 "SHA256"
    end
  end

  on_linux do
    on_intel do
      url "https://github.com/keepwatch/keepwatch/releases/download/v0.1.0-rc.1/keepwatch-linux-amd64.tar.gz"
      sha256 "SHA256"
    end
  end

  def install
    bin.install "keepwatch"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completion/keepwatch.bash" => "keepwatch"
    zsh_completion.install "completion/_keepwatch"
    fish_completion.install "completion/keepwatch.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/keepwatch version")
  end
end
