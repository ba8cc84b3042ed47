# Folds the lines that keepwatch watch appends to LOG:  elixir fold.exs LOG STATE
#
# STATE has the position in LOG, and the last line of each object. Both are replaced together, so the program may be killed
# at any time. The standard library has no JSON; the members before the object are always in this order: type, revision, id, resource.
defmodule Fold do
  def fold(line, objects) do
    case String.split(line, "\"", parts: 19) do
      [_, _, _, type, _, _, _, _, _, _, _, id, _, _, _, resource, _, "object", rest] ->
        key = {resource, id |> String.split("/") |> hd()}

        cond do
          not String.ends_with?(rest, "}}") -> objects
          type == "DELETED" -> Map.delete(objects, key)
          true -> Map.put(objects, key, line)
        end

      [_, _, _, "SYNCED", _, _, _, revision | _] ->
        IO.puts("#{map_size(objects)} objects at revision #{revision}")
        objects

      _ ->
        objects # a line that keepwatch was killed in; the event is repeated
    end
  end

  def load(state) do
    case File.read(state) do
      {:ok, text} ->
        [position | lines] = String.split(text, "\n", trim: true)
        {String.to_integer(position), Enum.reduce(lines, %{}, &fold/2)} # by resource and UID

      {:error, :enoent} ->
        {0, %{}}
    end
  end

  def follow(port, state, begun, position, objects, saved) do
    receive do
      {^port, {:data, {:noeol, part}}} ->
        follow(port, state, [begun | part], position, objects, saved)

      {^port, {:data, {:eol, part}}} ->
        line = IO.iodata_to_binary([begun | part])
        follow(port, state, [], position + byte_size(line) + 1, fold(line, objects), saved)
    after
      if(position == saved, do: :infinity, else: 100) ->
        File.write!(state <> ".new", Enum.map([position | Map.values(objects)], &[to_string(&1), "\n"]))
        File.rename!(state <> ".new", state)
        follow(port, state, begun, position, objects, position)
    end
  end
end

[log, state] = System.argv()
{position, objects} = Fold.load(state)
args = ["--pid=#{System.pid()}", "-c", "+#{position + 1}", "-f", log]
port = Port.open({:spawn_executable, System.find_executable("tail")}, [:binary, line: 65_536, args: args])
Fold.follow(port, state, [], position, objects, position)
