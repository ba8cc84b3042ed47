# What brew does with a formula whose archives are in a folder, as far as this project's formula needs it:
#
#   ruby brew.rb FORMULA FOLDER PREFIX
#
# It takes the archive of this system, compares its checksum, unpacks and installs it, and runs the formula's test.
require "digest"
require "fileutils"
require "open3"
require "pathname"
require "rbconfig"
require "tmpdir"

class Formula
  class << self
    attr_reader :given, :check

    %i[desc homepage version license url sha256].each do |name|
      define_method(name) { |value| (@given ||= {})[name] = value }
    end

    { on_macos: /darwin/, on_linux: /linux/ }.each do |name, system|
      define_method(name) { |&block| block.call if RbConfig::CONFIG["host_os"].match?(system) }
    end

    { on_arm: /arm|aarch/, on_intel: /x86_64/ }.each do |name, cpu|
      define_method(name) { |&block| block.call if RbConfig::CONFIG["host_cpu"].match?(cpu) }
    end

    def test(&block)
      @check = block
    end
  end

  def initialize(prefix)
    @prefix = Pathname(prefix)
  end

  { bin: "bin", man1: "share/man/man1", bash_completion: "etc/bash_completion.d",
    zsh_completion: "share/zsh/site-functions", fish_completion: "share/fish/vendor_completions.d" }.each do |name, path|
    define_method(name) { Place.new(@prefix / path) }
  end

  def version = self.class.given[:version]

  def shell_output(command)
    out, status = Open3.capture2e(command)
    raise "#{command}: #{status}: #{out}" unless status.success?

    out
  end

  def assert_match(expected, actual)
    raise "#{actual.inspect} does not have #{expected.inspect}" unless actual.match?(Regexp.escape(expected))
  end
end

# Place is a folder below the prefix.
class Place < Pathname
  def install(*files)
    FileUtils.mkdir_p(to_s)
    raise "nothing to install into #{self}" if files.flatten.empty?

    files.flatten.each do |file|
      (file.is_a?(Hash) ? file : { file => File.basename(file) }).each { |from, to| FileUtils.mv(from, self / to) }
    end
  end
end

formula, folder, prefix = ARGV
load formula
given = Keepwatch.given
archive = File.join(folder, File.basename(given.fetch(:url)))
sum = Digest::SHA256.file(archive).hexdigest
raise "#{archive} has the checksum #{sum}" unless sum == given.fetch(:sha256)

installed = Keepwatch.new(prefix)
Dir.mktmpdir do |dir|
  system("tar", "-xzf", archive, "-C", dir, exception: true)
  Dir.chdir(dir) { installed.install }
end
installed.instance_eval(&Keepwatch.check)
