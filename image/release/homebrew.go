package main

import "fmt"

// homebrew writes the formula.
func (r *release) homebrew() error {
	var platforms []byte
	for _, system := range []struct{ formula, name string }{{"macos", "darwin"}, {"linux", "linux"}} {
		archs := r.has(system.name)
		if len(archs) == 0 {
			continue
		}
		platforms = fmt.Appendf(platforms, "\n  on_%s do\n", system.formula)
		for _, arch := range archs {
			cpu, ok := map[string]string{"amd64": "intel", "arm64": "arm"}[arch]
			if !ok {
				return fmt.Errorf("Homebrew has no %s", arch)
			}
			name := archiveName(system.name + "-" + arch)
			const platform = "    on_%s do\n      url %q\n      sha256 %q\n    end\n"
			platforms = fmt.Appendf(platforms, platform, cpu, r.address(name), r.out.digests[name])
		}
		platforms = append(platforms, "  end\n"...)
	}
	if platforms == nil {
		return nil
	}
	return r.out.writeText("keepwatch.rb", fmt.Appendf(nil, formula, repository, r.version.number(), platforms))
}

const formula = `class Keepwatch < Formula
  desc "Follow Kubernetes without losing deletions"
  homepage %q
  version %q
  license "Apache-2.0"
%s
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
`
